"""The benchmarks as a job: what is measured, and when it is written."""

import json

import pytest

from saltwm.bench.timing import Figure
from saltwm.bench.training import TrainingStep
from saltwm.ground.errors import UsageError
from saltwm.jobs import bench
from saltwm.jobs.collect import Collect
from saltwm.jobs.presets import run_config


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return Collect("two-room", tmp_path_factory.mktemp("bench") / "data", 10, frame_every=5, workers=1).do()


@pytest.mark.parametrize("model", bench.TRAINED)
def test_every_model_whose_training_is_measured_can_take_a_step(data, model):
    assert TrainingStep(run_config("cpu", model), data).frames > 0


def test_figures_are_written_when_their_benchmark_ends_whatever_the_next_one_does(tmp_path, monkeypatch):
    def fails(quick):
        raise UsageError("no")

    monkeypatch.setattr(bench, "BENCHES", {"plan": lambda quick: [Figure("a step", 1.0, "s")], "train": fails})
    with pytest.raises(UsageError):
        bench.Bench("all", tmp_path).do()
    (figure,) = json.loads((tmp_path / "plan.json").read_text())
    assert figure["what"] == "a step"
    assert not (tmp_path / "train.json").exists()
