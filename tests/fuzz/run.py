"""Fuzz every parser of outside bytes, each for its share of the time; what is found and what was learnt is kept.

    python tests/fuzz/run.py --seconds 3600

The corpus, tests/fuzz/corpus/KIND, holds inputs that reached something new, the last MOST_LEARNT of each run; the next
one begins with them. An input that escapes its parser is put there as found-HASH, and tests/fuzz/test_corpus.py reads
all of them in every `make test`.
"""

import argparse
import contextlib
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

Fuzzer = subprocess.Popen[str]
HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
LARGEST = 4096
"""Bytes of an input, but for the two kinds whose valid files are larger."""
LARGE = {"rooms.h5": 200_000, "weights.safetensors": 200_000}
MOST_LEARNT = 40
MOST_SECONDS, MOST_MEGABYTES = 120, 3000
"""Of one input: beyond them libFuzzer calls it found. Its clock goes on while a busy machine does other work;
test_corpus.py is stricter and counts the processor's seconds."""


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
    with tempfile.TemporaryDirectory() as scratch, fuzzer(Path(scratch) / "log") as process:
        write_all(Path(scratch) / "valid")
        for kind in options.kinds:
            files = Path(shutil.copytree(Path(scratch) / "valid", Path(scratch) / kind / "files"))
            tried, crashes = fuzz(process, kind, files, KINDS[kind].file, share)
            found += crashes
            print(f"{kind:20} {tried:>9} inputs in {share} s, {len(crashes)} found", flush=True)
    for path in found:
        print(f"found: {path}")
    sys.exit(bool(found))


@contextlib.contextmanager
def fuzzer(log: Path) -> Iterator[Fuzzer]:
    """The process that fuzzes one kind after another; what it says before the first goes to a log."""
    words, pipe = [sys.executable, str(HERE / "one.py")], subprocess.PIPE
    with log.open("w") as said, subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=said, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def fuzz(process: Fuzzer, kind: str, files: Path, seed: Path | str, seconds: int) -> tuple[int, list[Path]]:
    """Fuzz one kind; how many inputs were tried, and those that escaped, now part of the corpus."""
    learnt, artifacts, kept = files.parent / "learnt", files.parent / "found", CORPUS / kind
    for folder in (learnt, artifacts, kept):
        folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(files / seed, learnt / "valid")
    size = LARGE.get(kind, LARGEST)
    bounds = [f"-timeout={MOST_SECONDS}", f"-rss_limit_mb={MOST_MEGABYTES}", f"-max_len={size}"]
    options = [f"-max_total_time={seconds}", *bounds, f"-artifact_prefix={artifacts}/", learnt, kept]
    ended = _one(process, kind, files, options)
    found = [_keep(kept, file) for file in sorted(artifacts.iterdir())]
    tried = inputs_tried(kind, ended, is_found=bool(found))
    if kind not in LARGE:  # their learnt files would make the repository heavy
        for file in sorted(learnt.iterdir(), key=lambda file: file.stat().st_mtime)[-MOST_LEARNT:]:
            shutil.copy(file, kept / file.name[:16])
    return tried, found


def inputs_tried(kind: str, said: str, *, is_found: bool) -> int:
    """How many inputs libFuzzer tried; an error if it found nothing and yet did not get to its end."""
    done = re.search(r"^Done (\d+) runs", said, re.MULTILINE)
    if done:
        return int(done[1])
    if not is_found:
        raise RuntimeError(f"{kind}: the fuzzer did not get to its end:\n" + "\n".join(said.splitlines()[-15:]))
    return max(map(int, re.findall(r"^#(\d+)", said, re.MULTILINE)), default=0)


def _one(process: Fuzzer, kind: str, files: Path, options: list[object]) -> str:
    """What libFuzzer says of one kind."""
    assert process.stdin is not None
    assert process.stdout is not None
    log = files.parent / "log"
    process.stdin.write(json.dumps([kind, str(files), str(log), *map(str, options)]) + "\n")
    process.stdin.flush()
    process.stdout.readline()  # comes when it has ended; nothing comes of a process that died
    return (log if log.exists() else files.parents[1] / "log").read_text(errors="replace")


def _keep(kept: Path, file: Path) -> Path:
    place = kept / f"found-{hashlib.sha256(file.read_bytes()).hexdigest()[:16]}"
    return Path(shutil.copy(file, place))


if __name__ == "__main__":
    main()
