"""Fuzz every parser of outside bytes, each for its share of the time; what is found and what was learnt is kept.

    python tests/fuzz/run.py --seconds 3600

The corpus, tests/fuzz/corpus/KIND, holds inputs that reached something new, the last MOST_LEARNT of each run; the next
one begins with them. An input that escapes its parser is put there as found-HASH, and tests/fuzz/test_corpus.py reads
all of them in every `make test`.
"""

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
LARGEST = 4096
"""Bytes of an input, but for the two kinds whose valid files are larger."""
LARGE = {"rooms.h5": 200_000, "weights.safetensors": 200_000}
MOST_LEARNT = 40
MOST_SECONDS, MOST_MEGABYTES = 5, 3000
"""Of one input: beyond them libFuzzer calls it found."""


def main() -> None:
    """Fuzz the kinds in turn; exit code 1 if any was found wanting."""
    sys.path[:0] = [str(HERE.parent)]
    from outside_files import KINDS, write_all

    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--seconds", type=int, default=3600)
    asked.add_argument("kinds", nargs="*", default=list(KINDS))
    options = asked.parse_args()
    share = max(1, options.seconds // len(options.kinds))
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        write_all(Path(scratch) / "valid")
        for kind in options.kinds:
            seed = Path(scratch) / "valid" / KINDS[kind].file
            tried, crashes = fuzz(kind, seed, Path(scratch) / kind, share)
            found += crashes
            print(f"{kind:20} {tried:>9} inputs in {share} s, {len(crashes)} found", flush=True)
    for path in found:
        print(f"found: {path}")
    sys.exit(bool(found))


def fuzz(kind: str, seed: Path, work: Path, seconds: int) -> tuple[str, list[Path]]:
    """Fuzz one kind; how many inputs were tried, and those that escaped, now part of the corpus."""
    learnt, artifacts, kept = work / "learnt", work / "found", CORPUS / kind
    for folder in (learnt, artifacts, kept):
        folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(seed, learnt / "valid")
    size = LARGE.get(kind, LARGEST)
    bounds = [f"-timeout={MOST_SECONDS}", f"-rss_limit_mb={MOST_MEGABYTES}", f"-max_len={size}"]
    ended = _one(kind, f"-max_total_time={seconds}", *bounds, f"-artifact_prefix={artifacts}/", learnt, kept)
    tried = re.findall(r"^#(\d+)", ended, re.MULTILINE)
    found = [_keep(kept, file) for file in sorted(artifacts.iterdir())]
    if kind not in LARGE:  # their learnt files would make the repository heavy
        for file in sorted(learnt.iterdir(), key=lambda file: file.stat().st_mtime)[-MOST_LEARNT:]:
            shutil.copy(file, kept / file.name[:16])
    return (tried[-1] if tried else "0"), found


def _one(kind: str, *options: object) -> str:
    """What libFuzzer says; its exit code says no more than its artifacts do."""
    words = [sys.executable, str(HERE / "one.py"), kind, *map(str, options)]
    return subprocess.run(words, capture_output=True, text=True, check=False).stderr


def _keep(kept: Path, file: Path) -> Path:
    place = kept / f"found-{hashlib.sha256(file.read_bytes()).hexdigest()[:16]}"
    return Path(shutil.copy(file, place))


if __name__ == "__main__":
    main()
