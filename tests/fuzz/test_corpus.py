"""What fuzzing learnt and found is read again in every run: refused with one line or valid, and at once."""

import shutil
import sys
import time
from pathlib import Path

import pytest
from outside_files import KINDS, refusal_of, write_all

sys.path.insert(0, str(Path(__file__).parent))
from run import CORPUS, inputs_tried


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


def test_a_fuzzer_that_never_began_is_no_success():
    """It once reported 0 inputs and 0 found of a process that had died among its imports."""
    assert inputs_tried("run.json", "#2\tINITED cov: 9\nDone 1779 runs in 6 second(s)\n", is_found=False) == 1779
    assert inputs_tried("run.json", "#2\tINITED cov: 9\n#512\tpulse\n==7== ERROR\n", is_found=True) == 512
    with pytest.raises(RuntimeError, match=r"run\.json: the fuzzer did not get to its end:\nTraceback"):
        inputs_tried("run.json", "Traceback (most recent call last):\n", is_found=False)
