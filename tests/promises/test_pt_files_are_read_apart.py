"""P13: public .pt files are read only in a child process, weights only, with limits; the parent stays untouched."""

import os
import resource
import tempfile
import zipfile

import pytest
import torch
from hostile_files import Payload, pickled
from peak_memory import forget_peak, peak_megabytes

from saltwm.ground.errors import DamagedError, UsageError
from saltwm.interop.weights import pt_file
from saltwm.interop.weights.pt_file import read_pt


def plain_pickle(path, canary):
    path.write_bytes(pickled(canary))


def hidden_in_a_torch_file(path, canary):
    torch.save({"state_dict": {"weight": torch.zeros(2)}, "extra": Payload(canary)}, path)


def tensor_that_claims_a_terabyte(path, canary):
    torch.save({"weight": torch.zeros(1).expand(2**38)}, path)


def zip_bomb(path, canary):
    """A storage of 512 MiB of zeros that takes half a megabyte in the file."""
    torch.save({"weight": torch.zeros(2**29, dtype=torch.uint8)}, path.with_suffix(".raw"))
    with zipfile.ZipFile(path.with_suffix(".raw")) as source, zipfile.ZipFile(path, "w") as target:
        for entry in source.infolist():
            target.writestr(entry.filename, source.read(entry), zipfile.ZIP_DEFLATED, compresslevel=1)
    path.with_suffix(".raw").unlink()


def cut_in_half(path, canary):
    torch.save({"weight": torch.randn(1000)}, path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def not_tensors(path, canary):
    torch.save({"state_dict": {"weight": torch.zeros(2), "epoch": 3}}, path)


def empty(path, canary):
    path.write_bytes(b"")


def whole_module(path, canary):
    torch.save(torch.nn.Linear(2, 2), path)


def torchscript(path, canary):
    torch.jit.trace(torch.nn.Linear(2, 2), torch.zeros(1, 2)).save(path)


def endless_length(path, canary):
    """A pickle that announces 2^60 bytes."""
    path.write_bytes(b"\x80\x04\x8e" + (2**60).to_bytes(8, "little") + b"x" * 100)


def deep(path, canary):
    path.write_bytes(b"\x80\x02" + b"]" * 500_000 + b"a" * 499_999 + b".")


def list_of_tensors(path, canary):
    torch.save([torch.zeros(2)], path)


def sparse(path, canary):
    torch.save({"weight": torch.eye(3).to_sparse()}, path)


def not_on_any_device(path, canary):
    torch.save({"weight": torch.empty(2**20, 2**20, device="meta")}, path)


QUICK = (hidden_in_a_torch_file, tensor_that_claims_a_terabyte, cut_in_half)
MORE = (
    zip_bomb,
    not_tensors,
    empty,
    whole_module,
    torchscript,
    endless_length,
    deep,
    list_of_tensors,
    sparse,
    not_on_any_device,
)


def check_refused(make, tmp_path, monkeypatch):
    path, canary = tmp_path / "weights.pt", tmp_path / "canary"
    make(path, canary)
    (tmp_path / "exchange").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "exchange"))
    limits = [resource.getrlimit(kind) for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE)]
    forget_peak()
    before = peak_megabytes()
    with pytest.raises(DamagedError, match=r"weights\.pt: not a weights-only file: ") as error:
        read_pt(path)
    assert "\n" not in str(error.value)
    assert not canary.exists()
    assert list((tmp_path / "exchange").iterdir()) == []
    assert peak_megabytes() - before < 100
    assert limits == [
        resource.getrlimit(kind) for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE)
    ]


@pytest.mark.parametrize("make", QUICK, ids=lambda make: make.__name__)
def test_a_malicious_or_absurd_file_is_refused_and_the_parent_untouched(make, tmp_path, monkeypatch):
    check_refused(make, tmp_path, monkeypatch)


@pytest.mark.full
@pytest.mark.parametrize("make", MORE, ids=lambda make: make.__name__)
def test_more_malicious_and_absurd_files_are_refused(make, tmp_path, monkeypatch):
    check_refused(make, tmp_path, monkeypatch)


def test_an_honest_file_is_read(tmp_path):
    """The control: views, shared storages and wrappers of a usual state dict come through."""
    weight = torch.randn(6, 4)
    torch.save({"state_dict": {"a": weight, "b": weight[:2], "c": weight.T, "n": torch.tensor(7)}}, tmp_path / "w.pt")
    found = read_pt(tmp_path / "w.pt")
    assert torch.equal(found["a"], weight)
    assert torch.equal(found["b"], weight[:2])
    assert torch.equal(found["c"], weight.T)
    assert found["n"] == 7


def test_no_setting_of_the_environment_makes_the_reader_trusting(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    check_refused(plain_pickle, tmp_path, monkeypatch)


def test_a_reader_that_takes_too_long_is_ended(tmp_path, monkeypatch):
    torch.save({"a": torch.zeros(1)}, tmp_path / "w.pt")
    monkeypatch.setattr(pt_file, "WALL_SECONDS", 0.01)
    with pytest.raises(DamagedError, match=r"not read within 0\.01 s"):
        read_pt(tmp_path / "w.pt")


def test_what_is_not_a_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.pt")
    for path in (tmp_path / "pipe.pt", tmp_path, tmp_path / "nothing.pt"):
        with pytest.raises(UsageError, match="no such file"):
            read_pt(path)


def test_a_file_too_large_to_be_weights_is_not_read(tmp_path):
    with open(tmp_path / "huge.pt", "wb") as file:
        file.truncate(pt_file.LARGEST_FILE + 1)  # sparse: it takes no room
    with pytest.raises(DamagedError, match="weights of a world model have at most"):
        read_pt(tmp_path / "huge.pt")


def test_what_the_child_says_is_printed_without_control_characters(tmp_path):
    messages = tmp_path / "messages"
    messages.write_bytes(b"warning\nrefused: a\x1b[31mred\x07 name " + b"x" * 5000 + b"\n")
    said = pt_file._refusal(messages, 1)
    assert said.startswith("a?[31mred? name")
    assert len(said) <= 300
