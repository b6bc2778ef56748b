"""Coverage-guided fuzzing of one kind of file from outside: only SaltErrors, no second over, no memory beyond bounds.

`tests/fuzz/run.py` starts it: python tests/fuzz/one.py KIND [libFuzzer's options and folders].
"""

import sys
import tempfile
from pathlib import Path

import atheris

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]
with atheris.instrument_imports(include=["saltwm"]):
    from outside_files import KINDS, refusal_of, write_all


def main() -> None:
    """Fuzz until the time is over or something is found."""
    name, *options = sys.argv[1:]
    kind, folder = KINDS[name], Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-"))
    write_all(folder)

    def one(data: bytes) -> None:
        (folder / kind.file).write_bytes(data)
        refusal_of(kind.read, folder, name)

    atheris.Setup([sys.argv[0], *options], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
