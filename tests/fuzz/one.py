"""Coverage-guided fuzzing of files from outside: only SaltErrors, no second over, no memory beyond bounds.

`tests/fuzz/run.py` starts it, and writes a line of JSON for each kind: [KIND, FOLDER, LOG, libFuzzer's options ...].
The folder is the kind's own, with a valid file of each kind. Each is fuzzed by a fork, so that the instrumented modules
are imported once; when it has ended, a line with its kind comes back.
"""

import json
import os
import sys
from pathlib import Path

import atheris

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]
with atheris.instrument_imports(include=["saltwm"]):
    from outside_files import KINDS, refusal_of


def main() -> None:
    """Fuzz what the lines of the input name, one after another."""
    for line in sys.stdin:
        name, folder, log, *options = json.loads(line)
        fork = os.fork()
        if fork == 0:
            os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
            fuzz(name, Path(folder), options)
        os.waitpid(fork, 0)
        print(name, flush=True)


def fuzz(name: str, folder: Path, options: list[str]) -> None:
    """Until the time is over or something is found; libFuzzer then ends the process."""
    kind = KINDS[name]

    def one(data: bytes) -> None:
        (folder / kind.file).write_bytes(data)
        refusal_of(kind.read, folder, name)

    atheris.Setup([sys.argv[0], *options], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
