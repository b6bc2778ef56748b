"""What fuzzing learnt and found is read again in every run: refused with one line or valid, and at once."""

import shutil
import time
from pathlib import Path

import pytest
from outside_files import KINDS, refusal_of, write_all

CORPUS = Path(__file__).parent / "corpus"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    write_all(folder)
    return folder


@pytest.mark.parametrize("name", KINDS)
def test_what_fuzzing_kept_is_refused_in_one_line_or_valid(name, files, tmp_path):
    kind, folder = KINDS[name], Path(shutil.copytree(files, tmp_path / "files"))
    kind.read(folder)  # unharmed, it is read
    for file in sorted((CORPUS / name).glob("*")):
        shutil.copyfile(file, folder / kind.file)
        started = time.process_time()
        refusal = refusal_of(kind.read, folder, f"{name}/{file.name}")
        assert "\n" not in refusal, f"{name}/{file.name}: {refusal}"
        assert time.process_time() - started < 1, f"{name}/{file.name} took too long"
