"""P12: loading a model, a dataset or a result runs no code, even where every hash has been made to fit."""

import contextlib
import json
import pickle
import shutil
from pathlib import Path

import pytest
from hostile_files import edit_json, object_array, pickled, rehash, rehash_dataset
from public_files import config_json, write_public
from small_runs import write_run

import saltwm
from saltwm.disk import checkpoint, durable
from saltwm.disk.dataset import Dataset
from saltwm.disk.records import read_cell
from saltwm.evaluation.tasks import read_tasks
from saltwm.ground.errors import DamagedError, SaltError
from saltwm.interop.weights.public import import_weights
from saltwm.jobs.again import Again
from saltwm.jobs.collect import Collect


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A run and a dataset to alter copies of."""
    folder = tmp_path_factory.mktemp("originals")
    write_run(folder / "run")
    Collect("two-room", folder / "data", 2, image_size=28, workers=1).do()
    return folder


@pytest.fixture
def place(originals, tmp_path):
    """Copies that an attack may alter."""
    shutil.copytree(originals, tmp_path, dirs_exist_ok=True)
    return tmp_path


def newest(place):
    return checkpoint.list_checkpoints(place / "run")[-1]


def replace_in_checkpoint(name):
    def attack(place, canary):
        (newest(place) / name).write_bytes(pickled(canary))
        rehash(newest(place))
        return lambda: saltwm.load(place / "run")

    return attack


def pickle_as_manifest(place, canary):
    (newest(place) / durable.MANIFEST).write_bytes(pickled(canary))
    return lambda: saltwm.load(newest(place))


def pickle_as_run_json(place, canary):
    (place / "run" / "run.json").write_bytes(pickled(canary))
    return lambda: saltwm.load(place / "run")


def edit_checkpoint(edit):
    def attack(place, canary):
        edit_json(newest(place) / "checkpoint.json", lambda info: edit(info, canary))
        rehash(newest(place))
        return lambda: saltwm.load(place / "run")

    return attack


def target_in_checkpoint(info, canary):
    info["run"]["model"] |= {"_target_": "os.mkdir", "_args_": [str(canary)]}


def unknown_model(info, canary):
    info["run"]["model"]["model"] = f"__import__('os').mkdir({str(canary)!r})"


def module_as_model(file):
    """A run whose model is a module that lies in the working directory."""

    def attack(place, canary):
        (place / "mine_too.py").write_text(f"import os\nos.mkdir({str(canary)!r})\n")
        for found in place.rglob(file):
            edit_json(found, lambda info: info["run"]["model"].update(model="mine_too:Model"))
        rehash(newest(place))

        def load():
            with contextlib.chdir(place):
                saltwm.load("run")

        return load

    return attack


def unknown_encoder(info, canary):
    info["run"]["model"]["encoder"]["kind"] = "os.mkdir"


def pickle_as_dataset_root(place, canary):
    (place / "data" / "zarr.json").write_bytes(pickled(canary))
    return lambda: Dataset.open(place / "data")


def object_array_as_actions(place, canary):
    chunk = next(file for file in (place / "data" / "part-00000" / "actions").rglob("c/**/*") if file.is_file())
    object_array(canary, chunk)
    rehash_dataset(place / "data")
    return lambda: Dataset.open(place / "data")


def pickle_codec(place, canary):
    """Zarr metadata that asks for objects decoded by pickle."""
    array = place / "data" / "part-00000" / "states" / "zarr.json"
    edit_json(array, lambda meta: meta.update(data_type="object", codecs=[{"name": "numcodecs.pickle"}]))
    rehash_dataset(place / "data")
    return lambda: Dataset.open(place / "data")


def pickle_as_tasks(place, canary):
    (place / "tasks.json").write_bytes(pickled(canary))
    return lambda: read_tasks(place / "tasks.json")


def pickle_as_evaluation(place, canary):
    (place / "evaluation.json").write_bytes(pickled(canary))
    return lambda: read_cell(place)


def pickle_as_public_weights(place, canary):
    write_public(place / "public", {}, config_json("salt"))
    (place / "public" / "weights.pt").write_bytes(pickled(canary))
    return lambda: import_weights(place / "public", "two-room", Dataset.open(place / "data"), place / "imported")


def target_in_public_config(place, canary):
    config = config_json("salt")
    config["encoder"] = {"_target_": "os.mkdir", "_args_": [str(canary)]}
    write_public(place / "public", {}, config)
    return lambda: import_weights(place / "public", "two-room", Dataset.open(place / "data"), place / "imported")


def module_as_environment(source):
    """An unfinished dataset whose environment is a module that lies in the working directory."""

    def attack(place, canary):
        (place / "mine_too.py").write_text(f"import os\nos.mkdir({str(canary)!r})\n")
        recipe = json.loads((place / "data" / "collection.json").read_text())
        recipe["world"]["environment"] = "mine_too:Env"
        recipe["source"] = source or recipe["source"]
        durable.make_folder(place / "unfinished")
        durable.write_json(place / "unfinished" / "collection.json", recipe)
        (place / "file.h5").write_bytes(b"")

        def load():
            with contextlib.chdir(place):
                for job in Again((Path("unfinished"),)).jobs():
                    job.do()

        return load

    return attack


ATTACKS = {
    "pickle as weights.safetensors": replace_in_checkpoint("weights.safetensors"),
    "pickle as checkpoint.json": replace_in_checkpoint("checkpoint.json"),
    "pickle as manifest.json": pickle_as_manifest,
    "pickle as run.json": pickle_as_run_json,
    "_target_ in checkpoint.json": edit_checkpoint(target_in_checkpoint),
    "unknown model": edit_checkpoint(unknown_model),
    "unknown encoder": edit_checkpoint(unknown_encoder),
    "module as the model of a run": module_as_model("run.json"),
    "module as the model of a checkpoint": module_as_model("checkpoint.json"),
    "pickle as dataset root": pickle_as_dataset_root,
    "object array as actions": object_array_as_actions,
    "pickle codec in zarr metadata": pickle_codec,
    "pickle as tasks": pickle_as_tasks,
    "pickle as evaluation": pickle_as_evaluation,
    "pickle as public weights": pickle_as_public_weights,
    "_target_ in public config.json": target_in_public_config,
    "module as the environment of a collection": module_as_environment(None),
    "module as the environment of an import": module_as_environment({"kind": "import", "file": "file.h5", "bytes": 0}),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_malicious_file_is_refused_and_nothing_runs(name, place):
    canary = place / "canary"
    load = ATTACKS[name](place, canary)
    with pytest.raises(SaltError):
        load()
    assert not canary.exists()


def test_the_payload_works_where_pickles_are_trusted(tmp_path):
    """The control: without it, silence would prove nothing."""
    pickle.loads(pickled(tmp_path / "canary"))
    assert (tmp_path / "canary").is_dir()


def test_the_originals_load(place):
    """The other control: it is the attack that is refused."""
    saltwm.load(place / "run")
    rehash(newest(place))
    saltwm.load(place / "run")
    rehash_dataset(place / "data")
    assert len(Dataset.open(place / "data")) == 2


def test_a_manifest_cannot_lead_out_of_its_directory(place):
    outside = place / "outside"
    outside.write_text("secret")
    entry = {"bytes": 6, "sha256": durable.sha256(outside)}
    manifest = newest(place) / durable.MANIFEST
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "../../../outside": entry}))
    with pytest.raises(DamagedError, match="outside"):
        saltwm.load(place / "run" / "checkpoints" / newest(place).name)
