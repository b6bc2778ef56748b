"""Every kind of file that comes from outside: one valid file of each, where its reader looks for it, and that reader.

Where hashes protect a file they are made to fit again, so that it is the parser that is tried.
"""

import contextlib
import csv
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hostile_files import rehash, rehash_dataset
from interop.test_recordings import write_lerobot
from PIL import Image
from public_files import config_json
from small_runs import WORLD, write_run

import saltwm
from saltwm.disk import checkpoint, durable, layout
from saltwm.disk.dataset import Dataset
from saltwm.disk.durable import write_config
from saltwm.disk.records import EpisodeRecord, Evaluation, PlanRecord, Rate, Task, TaskSet, read_cell
from saltwm.evaluation.protocols import CLEAN_PROTOCOL
from saltwm.evaluation.tasks import read_tasks, write_tasks
from saltwm.explore.messages import Refused, read_message
from saltwm.ground.config import PriorConfig
from saltwm.ground.errors import SaltError, UsageError
from saltwm.ground.identity import filed
from saltwm.ground.strict_json import to_plain
from saltwm.interop.hdf5 import export_hdf5, import_hdf5
from saltwm.interop.importing import import_recordings
from saltwm.interop.weights.config_json import read_stated
from saltwm.jobs.again import jobs_of
from saltwm.jobs.collect import Collect
from saltwm.jobs.evaluate import Evaluate
from saltwm.planning import prior_files
from saltwm.planning.names import planner_named
from saltwm.planning.prior_learning import Figures

STEP = Path("run") / "checkpoints" / "step-000000"


@dataclass(frozen=True)
class Kind:
    """A file from outside."""

    file: Path | str
    read: Callable[[Path], object]
    """Given the folder that all of them are in."""


def write_all(folder: Path) -> None:
    """One valid file of each kind."""
    folder.mkdir(parents=True, exist_ok=True)
    write_run(folder / "run")
    _write_prior(folder / STEP)
    _write_records(folder)
    durable.write_json(folder / "config.json", config_json("lewm"))
    _write_recording(folder / "recording")
    write_lerobot(folder / "robot", as_images=True)
    rooms = Collect("two-room", folder / "rooms", 2, image_size=16, workers=1, episodes_per_part=1).do()
    export_hdf5(rooms, folder / "rooms.h5")
    asked = Evaluate("random", data=Path("rooms"), out=Path("results"), protocol="paper", tasks=4)
    durable.write_json(folder / "job.json", filed(asked))
    (folder / "planner.txt").write_text("gauss-newton,mu=0.1,starts=3")
    (folder / "message.txt").write_text(
        '{"id": 7, "ask": "imagine", "with": {"model": "two-room-salt", "state": [60.0, 112.0], '
        '"episode": 0, "step": 0, "blocks": [[0.0, 0.1, 0.2, 0.3]]}}'
    )


def _write_prior(model: Path) -> None:
    info = prior_files.PriorInfo(
        format=prior_files.FORMAT,
        prior=PriorConfig(width=8, depth=1),
        latent_dim=12,
        block_dim=10,
        world=WORLD,
        checkpoint_sha256="a" * 64,
        learnt_on_sha256="a" * 64,
        dataset_sha256="b" * 64,
        held_out=Figures(0.5, 0.5, 0.7),
        versions={"torch": "2"},
    )
    durable.make_folder(model / "prior")
    write_config(model / "prior" / prior_files.INFO_FILE, info)


def _write_records(folder: Path) -> None:
    tasks = tuple(Task(index, index, 3, (1.0, 2.5), (4.0, 5.0), 3.5) for index in range(3))
    write_tasks(folder / "tasks.json", TaskSet(WORLD, CLEAN_PROTOCOL, 1, "a" * 64, 9, 1, 2, tasks))
    episodes = [
        EpisodeRecord(
            index, index > 0, 7 if index else None, 9, "reached", 3.5, 0.5, 0.4, (PlanRecord(0, (0.5, 0.25)),)
        )
        for index in range(3)
    ]
    (folder / "episodes.jsonl").write_text("".join(durable.json_line(to_plain(episode)) for episode in episodes))
    common = {"environment": "two-room", "method": "salt", "protocol": "clean", "horizon_blocks": 5, "seed": 1}
    write_config(
        folder / "evaluation.json",
        Evaluation(
            **common,
            planner={"kind": "cem", "candidates": 300},
            tasks_file="tasks.json",
            tasks_sha256="b" * 64,
            checkpoint=None,
            checkpoint_sha256=None,
            success=Rate(2, 3, 0.1, 0.9),
            median_steps_to_success=7.0,
            seconds=1.5,
        ),
    )


def _write_recording(folder: Path) -> None:
    """A take of pictures with a table of its actions, as people keep them."""
    (folder / "take").mkdir(parents=True)
    for step in range(4):
        Image.fromarray(np.full((8, 8, 3), 30 * step, np.uint8)).save(folder / "take" / f"{step:04d}.png")
    with (folder / "take.csv").open("w", newline="") as file:
        rows = [[0.1 * step, -0.2, step, 0.1 * step] for step in range(4)]
        csv.writer(file).writerows([["action_x", "action_y", "state_x", "time"], *rows])


# --- readers ---------------------------------------------------------------------------------------------------------


def _model(folder: Path) -> None:
    rehash(folder / STEP)
    saltwm.load(folder / STEP)


def _prior(folder: Path) -> None:
    rehash(folder / STEP / "prior")
    prior_files.read_info(folder / STEP / "prior")


def _dataset(folder: Path) -> None:
    with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, OSError, RecursionError):
        rehash_dataset(folder / "rooms")  # where it still can be read
    Dataset.open(folder / "rooms", verify="sizes")


def _benchmark_file(folder: Path) -> None:
    try:
        import_hdf5(folder / "rooms.h5", "two-room", folder / "imported")
    finally:
        shutil.rmtree(folder / "imported", ignore_errors=True)


def _recording(folder: Path, name: str = "recording") -> None:
    try:
        import_recordings(folder / name, folder / "recorded", image_size=8)
    finally:
        shutil.rmtree(folder / "recorded", ignore_errors=True)


def _robot(folder: Path) -> None:
    _recording(folder, "robot")


def _message(folder: Path) -> None:
    try:
        read_message((folder / "message.txt").read_bytes().decode("utf-8", "surrogateescape"))
    except Refused as error:
        raise UsageError(str(error)) from error


KINDS = {
    "run.json": Kind("run/run.json", lambda folder: checkpoint.read_run(folder / "run")),
    "checkpoint.json": Kind(STEP / "checkpoint.json", _model),
    "manifest.json": Kind(STEP / "manifest.json", lambda folder: saltwm.load(folder / STEP)),
    "weights.safetensors": Kind(STEP / "weights.safetensors", _model),
    "prior.json": Kind(STEP / "prior" / prior_files.INFO_FILE, _prior),
    "tasks.json": Kind("tasks.json", lambda folder: read_tasks(folder / "tasks.json")),
    "evaluation.json": Kind("evaluation.json", read_cell),
    "episodes.jsonl": Kind("episodes.jsonl", read_cell),
    "job.json": Kind("job.json", jobs_of),
    "config.json": Kind("config.json", lambda folder: read_stated(folder / "config.json")),
    "zarr.json": Kind(Path("rooms") / layout.ROOT_FILE, _dataset),
    "rooms.h5": Kind("rooms.h5", _benchmark_file),
    "take.csv": Kind("recording/take.csv", _recording),
    "take.png": Kind("recording/take/0001.png", _recording),
    "info.json": Kind("robot/meta/info.json", _robot),
    "rows.parquet": Kind("robot/data/chunk-000/file-000.parquet", _robot),
    "episodes.parquet": Kind("robot/meta/episodes/chunk-000/file-000.parquet", _robot),
    "message": Kind("message.txt", _message),
    "planner": Kind("planner.txt", lambda folder: planner_named(_text(folder / "planner.txt"))),
}


def _text(file: Path) -> str:
    return file.read_bytes().decode("utf-8", "surrogateescape")


def refusal_of(read: Callable[[Path], object], folder: Path, what: str) -> str:
    """What the reader says, or nothing if it reads a valid result; any exception of another kind is the finding."""
    try:
        read(folder)
    except SaltError as error:
        return str(error)
    except Exception as error:
        raise AssertionError(f"{what} escaped as {error!r:.300}") from error
    return ""
