"""Apply each sabotage to a copy of the package, run the tests that should catch it, print a table.

python tests/sabotage/run.py [NAME ...]    exit 1 if one survives or no longer applies
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sabotages import SABOTAGES, Sabotage

ROOT = Path(__file__).parents[2]
SECONDS = 600
RED = 1
"""pytest's exit code when tests ran and failed; others mean that none ran."""


def main(names: list[str]) -> int:
    """Exit code."""
    chosen = [sabotage for sabotage in SABOTAGES if not names or sabotage.name in names]
    missed = 0
    with ThreadPoolExecutor(os.cpu_count()) as side_by_side:
        for sabotage, (verdict, seconds) in zip(chosen, side_by_side.map(timed, chosen), strict=True):
            missed += not verdict.startswith("caught")
            print(f"{sabotage.name}  {sabotage.what:<48}  {seconds:5.0f} s  {verdict}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    return 1 if missed else 0


def timed(sabotage: Sabotage) -> tuple[str, float]:
    """What became of it, and how many seconds that took."""
    started = time.monotonic()
    return attempt(sabotage), time.monotonic() - started


def attempt(sabotage: Sabotage) -> str:
    """What became of it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(ROOT / "saltwm", copy / "saltwm", ignore=shutil.ignore_patterns("__pycache__"))
        for entry in ROOT.iterdir():
            if entry.name not in ("saltwm", "work") and not entry.name.startswith("."):
                (copy / entry.name).symlink_to(entry)
        file = copy / "saltwm" / sabotage.file
        text = file.read_text()
        if text.count(sabotage.old) != 1:
            return f"does not apply: {text.count(sabotage.old)} places in {sabotage.file}"
        file.write_text(text.replace(sabotage.old, sabotage.new))
        return run_tests(sabotage, copy)


def run_tests(sabotage: Sabotage, copy: Path) -> str:
    """The test that turned red, or that none did."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not full", "--rootdir", str(copy)]
    command += shlex.split(sabotage.tests)
    environment = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"survived: its tests took more than {SECONDS} s"
    red = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    if done.returncode == RED and red:
        return f"caught by {red[0].removeprefix('FAILED ').split(' - ')[0]}"
    return f"survived (pytest's exit code {done.returncode})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
