"""The offline score tells a model that knows its world from one that does not, without a simulator."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from saltwm import write_dataset
from saltwm.cli.telling import tell
from saltwm.disk.records import read_cells
from saltwm.evaluation.statistics import wilson
from saltwm.ground.config import PriorConfig
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.ground.rng import stream
from saltwm.interop.recordings import Recording
from saltwm.jobs.measures import Diagnose
from saltwm.jobs.prior_learner import learn_prior
from saltwm.jobs.score import Score
from saltwm.jobs.scoring import Encoded, OfflineScore, _against_stillness, _ranked, ordered, require_success
from saltwm.jobs.shelf import HERE, of_recipes
from saltwm.train import train


class Known:
    """A world of points: a block of action numbers moves a latent by its sum; `gain` is how well the model knows it."""

    window = 1

    def __init__(self, gain: float) -> None:
        self.gain = gain

    def rollout(self, history: torch.Tensor, conditions: torch.Tensor) -> torch.Tensor:
        return history[:, -1:] + self.gain * conditions.cumsum(dim=1)


def stretches() -> Encoded:
    generator = torch.Generator().manual_seed(0)
    moves = torch.randn(64, 5, 3, generator=generator)
    start = torch.randn(64, 1, 3, generator=generator)
    latents = torch.cat([start, start + moves.cumsum(dim=1)], dim=1)
    return Encoded(latents, moves, moves, window=1)


@pytest.mark.parametrize(("gain", "rank", "error"), [(1.0, 0.0, 0.0), (0.0, 0.5, 1.0), (-1.0, 0.75, 4.0)])
def test_a_model_that_knows_the_world_ranks_the_recorded_plan_first(gain: float, rank: float, error: float) -> None:
    model: Any = Known(gain)
    found = _ranked(model, stretches(), seed=0)
    assert found["rank"] == pytest.approx(rank, abs=0.05)
    low, high = found["rank_interval"]
    assert low <= found["rank"] <= high
    assert _against_stillness(model, stretches()) == pytest.approx(error, abs=1e-5)


def pushed(number: int, steps: int = 60) -> Recording:
    """A square that actions push."""
    actions = stream(number, "pushed").uniform(-1, 1, (steps, 2)).astype(np.float32)
    places = np.clip(6 + np.concatenate([np.zeros((1, 2)), np.cumsum(actions, axis=0)]), 0, 12)
    frames = np.zeros((steps + 1, 16, 16, 3), np.uint8)
    for frame, (x, y) in zip(frames, places.astype(int), strict=True):
        frame[y : y + 4, x : x + 4] = 255
    return Recording(frames, actions, places)


def test_recordings_train_and_are_scored_diagnosed_and_given_a_prior(tmp_path: Path, tiny: Any) -> None:
    episodes = [pushed(number) for number in range(24)]
    dataset = write_dataset(tmp_path / "data", episodes, name="pushes", image_size=16)
    train(tiny, dataset, tmp_path / "run")
    found = Score(tmp_path / "run", tmp_path / "data", pairs=16).do()
    assert 0 <= found.rank <= 1
    assert found.prior_nll is None
    learn_prior(tmp_path / "run", dataset, PriorConfig(steps=2, width=8, batch_size=8))
    assert Score(tmp_path / "run", tmp_path / "data", pairs=16).do().prior_nll is not None
    diagnosed = Diagnose(
        tmp_path / "run", dataset.path, tmp_path / "out", horizon=5, trajectories=4, batches=1, frames=64
    ).do()
    assert diagnosed.probes.cost_order is None  # nobody knows the true distance
    assert [probe.field for probe in diagnosed.probes.fields] == ["state"]


def test_episodes_that_training_may_have_seen_are_scored_with_a_warning(
    tmp_path: Path, tiny: Any, dataset: Any, run: Path, capsys: Any
) -> None:
    Score(run, dataset.path, pairs=4).do()
    assert "may have seen" not in capsys.readouterr().err
    windows = replace(tiny, train=replace(tiny.train, split="window"))  # as the preset `paper` splits
    train(windows, dataset, tmp_path / "run")
    Score(tmp_path / "run", dataset.path, pairs=4).do()
    assert "measured on episodes that training may have seen" in capsys.readouterr().err


def test_what_cannot_be_scored_is_refused(tmp_path: Path) -> None:
    shipped = Path(__file__).parents[2] / "checkpoints"
    with pytest.raises(UsageError, match=r"no held-out episode has 99 action blocks; --horizon \d+ fits"):
        Score(shipped / "two-room-salt", shipped / "two-room-data", horizon=99).do()
    with pytest.raises(UsageError, match="pairs must be at least 2"):
        Score(shipped / "two-room-salt", shipped / "two-room-data", pairs=1).do()
    with pytest.raises(MismatchError, match="environment"):
        Score(shipped / "two-room-salt", shipped / "reacher-data").do()


def test_a_shipped_model_beats_chance_and_stillness_on_its_held_out_data(tmp_path: Path) -> None:
    root = Path(__file__).parents[2] / "checkpoints"
    out = tmp_path / "score.json"
    found = Score(root / "two-room-salt", root / "two-room-data", pairs=48, out=out).do()
    assert found.rank_interval[1] < 0.25
    assert found.error_against_stillness < 0.5
    assert json.loads(out.read_text())["rank"] == found.rank


# --- does it order models as planning does? --------------------------------------------------------------------------


def scored(rank: float, error: float) -> OfflineScore:
    return OfflineScore("run", "data", 8, 5, 7, rank, (rank, rank), error, None, None)


def test_a_figure_that_orders_models_as_success_does_is_told_from_one_that_does_not() -> None:
    found = ordered(
        {
            "a-salt": (scored(0.1, 0.9), wilson(90, 100)),
            "a-lewm": (scored(0.2, 0.2), wilson(40, 100)),
            "b-salt": (scored(0.3, 0.8), wilson(30, 100)),
            "b-lewm": (scored(0.4, 0.8), wilson(10, 100)),
        }
    )
    by_rank, by_error, by_prior = found.orders
    assert (by_rank.measure, by_rank.correlation, by_rank.agreeing, by_rank.pairs) == ("rank", 1.0, 2, 2)
    assert (by_error.agreeing, by_error.pairs) == (0, 2)  # the wrong order, and a tie
    assert by_error.correlation is not None
    assert by_error.correlation < 0
    assert (by_prior.correlation, by_prior.pairs) == (None, 0)  # no model has a prior


def test_models_of_one_environment_are_paired_however_long_their_kind_is_called() -> None:
    names = ("two-room-salt", "two-room-dino-wm", "two-room-salt-memory", "reacher-salt")
    found = ordered({name: (scored(0.1, 0.9), wilson(90, 100)) for name in names})
    assert [model.environment for model in found.models] == ["two-room"] * 3 + ["reacher"]
    assert found.orders[0].pairs == 3


def test_shipped_models_are_compared_with_the_success_of_the_records_alone(tmp_path: Path) -> None:
    items = of_recipes(HERE)
    rates = require_success(items, read_cells(Path("results")), Path("results"))
    assert {item.checkpoint.name: rate.n for item, rate in rates} == {item.checkpoint.name: 100 for item in items}
    with pytest.raises(UsageError, match="expected one evaluation of two-room-salt, clean with cem"):
        require_success(items, [], tmp_path)
    with pytest.raises(UsageError, match="go together"):
        Score(Path("all")).do()
    with pytest.raises(UsageError, match=r"give --data DATASET.*; --data two-room-data is shipped for it"):
        Score(Path("two-room-salt")).do()


def test_a_score_ends_with_what_it_can_tell() -> None:
    little, enough = "it has learnt little yet", "it has learnt what actions do"
    for rank, error, said in ((0.1, 0.3, enough), (0.1, 1.0, little), (0.5, 0.3, little)):
        told = tell(Score(Path("run"), Path("data")), scored(rank, error))
        assert told is not None
        assert told.told["verdict"].startswith(said)
