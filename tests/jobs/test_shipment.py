"""Shipped checkpoints: small, whole, the same plans every time, with a card that says no more than was measured."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from power_cuts import power_cut
from small_records import small_cell, write_cell
from small_runs import run_info, write_run

import saltwm
from saltwm.disk import checkpoint, durable
from saltwm.disk.checkpoint import RunInfo
from saltwm.disk.durable import read_config, write_config
from saltwm.disk.records import Cell, Evaluation, PlannedCell, Rate
from saltwm.ground.errors import DamagedError, MismatchError, NonFiniteError, SaltError, UsageError
from saltwm.interop.weights.public import export_weights
from saltwm.jobs.card import card_text, measured, write_card
from saltwm.jobs.job import spell
from saltwm.jobs.presets import run_config
from saltwm.jobs.shipment import read_shipment, ship
from saltwm.jobs.shipping import Card
from saltwm.jobs.train import Train
from saltwm.planning.policy import View
from saltwm.train import train


@pytest.fixture(scope="module")
def shipped(run, tmp_path_factory):
    out = tmp_path_factory.mktemp("shelf") / "checkpoints" / "two-room-salt"
    ship(run, out)
    return out


def finished(path, **changes):
    """A run of one checkpoint at its last step, with a dataset that is gone."""
    saved = write_run(path, steps=(9,))
    write_config(path / checkpoint.RUN_FILE, run_info(**changes))
    return saved


# --- weights --------------------------------------------------------------------------------------------------------


def test_matrices_are_rounded_to_float16_and_everything_else_is_kept(run, shipped):
    stored = checkpoint.read_tensors(shipped / checkpoint.WEIGHTS_FILE)
    _, full = checkpoint.read_weights(checkpoint.find_checkpoint(run))
    kinds = {tensor.dtype for tensor in stored.values()}
    assert {torch.float16, torch.float32} <= kinds
    for name, tensor in full.items():
        matrix = tensor.ndim > 1
        assert (stored[name].dtype == torch.float16) == matrix, name
        assert torch.equal(stored[name], tensor.half() if matrix else tensor), name


def test_what_is_loaded_is_float32_and_nearly_what_was_trained(run, shipped):
    original, loaded = saltwm.load(run).state_dict(), saltwm.load(shipped).state_dict()
    for name, tensor in loaded.items():
        assert tensor.dtype == original[name].dtype
        torch.testing.assert_close(tensor, original[name], rtol=2**-11, atol=2**-24)  # float16's rounding


def test_half_precision_halves_the_size_and_full_changes_no_bit(run, tmp_path, shipped):
    ship(run, tmp_path / "full", "full")
    source = checkpoint.find_checkpoint(run) / checkpoint.WEIGHTS_FILE
    assert (tmp_path / "full" / checkpoint.WEIGHTS_FILE).read_bytes() == source.read_bytes()
    small = (shipped / checkpoint.WEIGHTS_FILE).stat().st_size
    assert 0.4 < small / source.stat().st_size < 0.75  # a tiny model has many vectors


@pytest.mark.parametrize("model", ["salt", "lewm"])
def test_the_models_of_the_cpu_preset_fit_into_ten_megabytes(model):
    from saltwm.ground.config import WorldSpec
    from saltwm.model.world_model import WorldModel

    weights = WorldModel(run_config("cpu", model).model, WorldSpec("cube", 5)).state_dict()
    assert len(checkpoint.to_bytes(checkpoint.halved(weights))) < 9.9e6


@torch.no_grad()
def test_every_load_gives_the_same_plan_bit_for_bit(shipped, dataset):
    def plan():
        agent = saltwm.Agent(
            saltwm.load(shipped), saltwm.CEMConfig(candidates=20, iterations=3, elites=4), horizon_blocks=2
        )
        frames = dataset.read_frames(np.array([0, 0]), np.array([0, 25]))
        return agent.decide(View(frames[None, :1], np.zeros((1, 0, 10), np.float32), frames[1:]), [(0, 0)])

    first, again = plan(), plan()
    assert np.array_equal(first.actions, again.actions)
    assert np.array_equal(first.elite_costs, again.elite_costs)


def test_a_value_that_overflows_float16_is_refused_and_full_precision_takes_it(tmp_path):
    saved = finished(tmp_path / "run")
    info, weights = checkpoint.read_weights(saved)
    name = next(name for name, tensor in weights.items() if tensor.ndim > 1)
    weights[name].view(-1)[0] = 1e5
    checkpoint.save(tmp_path / "run", info, weights, {}, keep=1)
    with pytest.raises(NonFiniteError, match=rf"{name}: a value of 1e\+05 does not fit float16; use the `precision`"):
        ship(tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    ship(tmp_path / "run", tmp_path / "out", "full")
    weights[name].view(-1)[0] = float("nan")
    checkpoint.save(tmp_path / "run", info, weights, {}, keep=1)
    with pytest.raises(NonFiniteError, match="is not finite"):
        ship(tmp_path / "run", tmp_path / "out", "full")


def test_a_shipped_vit_is_exported_in_float32(tmp_path):
    finished(tmp_path / "run")
    ship(tmp_path / "run", tmp_path / "shipped")
    assert export_weights(tmp_path / "shipped", tmp_path / "public") > 0
    tensors = torch.load(tmp_path / "public" / "weights.pt", weights_only=True)
    assert {tensor.dtype for tensor in tensors.values()} <= {torch.float32, torch.int64}


# --- the directory --------------------------------------------------------------------------------------------------


def test_a_shipment_carries_how_it_was_learnt(run, dataset, shipped):
    shipment = read_shipment(shipped)
    assert shipment.data == dataset.recipe
    assert shipment.training_seconds > 0
    assert (shipped / "metrics.jsonl").read_bytes() == (run / "metrics.jsonl").read_bytes()
    assert not (shipped / checkpoint.OPTIMIZER_FILE).exists()
    assert checkpoint.card(shipped)["step"] == shipment.total_steps == 6


@pytest.mark.parametrize("name", ["weights.safetensors", "shipment.json", "metrics.jsonl", "checkpoint.json"])
def test_a_damaged_file_is_refused_and_named(shipped, tmp_path, name):
    copy = shutil.copytree(shipped, tmp_path / "copy")
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / name).write_bytes(data)
    with pytest.raises(DamagedError, match=name):
        saltwm.load(copy)
    with pytest.raises(DamagedError, match=name):
        write_card(copy, copy / "README.md", [])


def test_a_stranger_in_the_directory_is_refused_but_not_its_card(shipped, tmp_path):
    copy = shutil.copytree(shipped, tmp_path / "copy")
    (copy / "README.md").write_text("a card\n")
    saltwm.load(copy)
    (copy / "extra").write_text("")
    with pytest.raises(DamagedError, match="extra"):
        saltwm.load(copy)


def test_training_neither_starts_in_a_shipped_checkpoint_nor_goes_on_from_one(tiny, dataset, shipped, tmp_path):
    copy = shutil.copytree(shipped, tmp_path / "copy")
    with pytest.raises(UsageError, match="holds a checkpoint, and nothing to go on training from"):
        train(tiny, dataset, copy)
    saltwm.load(copy)  # and it is unharmed
    with pytest.raises(UsageError, match="weights alone"):
        checkpoint.read_checkpoint(copy)


def test_only_a_finished_run_is_shipped_unless_a_checkpoint_is_named(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    write_config(copy / "run.json", dataclasses.replace(read_config(RunInfo, copy / "run.json"), total_steps=7))
    with pytest.raises(UsageError, match="at step 6 of 7"):
        ship(copy, tmp_path / "out")
    ship(checkpoint.find_checkpoint(copy), tmp_path / "out")
    with pytest.raises(UsageError, match="shipped already"):
        ship(tmp_path / "out", tmp_path / "again")


def test_a_shipment_replaces_a_shipment_with_the_same_bytes_and_nothing_else(run, tmp_path):
    ship(run, tmp_path / "out")
    first = durable.file_hashes(tmp_path / "out")
    ship(run, tmp_path / "out")
    assert durable.file_hashes(tmp_path / "out") == first
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(UsageError, match=r"mine: not empty \(it holds thesis.tex\)"):
        ship(run, tmp_path / "mine")


def test_a_shipment_that_is_too_large_or_of_other_data_is_refused(run, tmp_path, dataset):
    with pytest.raises(UsageError, match=r"more than 0\.001"):
        ship(run, tmp_path / "out", most_megabytes=0.001)
    from saltwm.jobs.collect import Collect

    other = Collect("two-room", tmp_path / "other", 2, image_size=16, seed=1, workers=1).do()
    with pytest.raises(MismatchError, match="the run was trained on"):
        ship(run, tmp_path / "out", data=other.path)
    assert not (tmp_path / "out").exists()


def test_a_run_whose_dataset_is_gone_is_shipped_without_its_recipe(tmp_path):
    finished(tmp_path / "run", dataset=str(tmp_path / "nowhere"))
    assert ship(tmp_path / "run", tmp_path / "out").data is None


def test_a_crash_leaves_a_whole_shipment_or_none(run, tmp_path):
    with power_cut("publish") as cut:
        ship(run, tmp_path / "out")
    assert cut
    assert not (tmp_path / "out").exists()
    ship(run, tmp_path / "out")
    saltwm.load(tmp_path / "out")


def test_the_neighbours_of_a_shipment_are_left_alone_and_nothing_stays_behind(run, tmp_path, monkeypatch):
    for name in (".tmp-7-mymodel", ".tmp-saltwm-old-theirs", ".tmp-mine", f".tmp-saltwm-{'1' * 16}-not-mymodel"):
        (tmp_path / name).mkdir()
    before = set(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    ship(run, Path("mymodel"))
    for leftover in (
        f".tmp-saltwm-{'9' * 16}-mymodel",
        ".tmp-saltwm-old-mymodel",
    ):  # of this very shipment, killed before
        (tmp_path / leftover).mkdir()
    ship(run, Path("mymodel"))
    assert set(tmp_path.iterdir()) == before | {tmp_path / "mymodel"}


@pytest.mark.parametrize("step", ["publish", "swap", "remove"])
def test_a_crash_while_a_shipment_is_replaced_leaves_the_old_one_or_the_new_one(run, tmp_path, step):
    ship(run, tmp_path / "out")
    with power_cut(step) as cut:
        ship(run, tmp_path / "out", "full")
    assert cut
    saltwm.load(tmp_path / "out")
    assert read_shipment(tmp_path / "out").precision == ("full" if step == "remove" else "half")


def test_what_a_killed_shipment_set_aside_comes_back(run, tmp_path):
    ship(run, tmp_path / "out")
    (tmp_path / "out").rename(tmp_path / ".tmp-saltwm-old-out")  # killed between the two moves
    with pytest.raises(UsageError, match="no such"), durable.only_replacer(tmp_path / "out", "ship"):
        raise UsageError("no such disk")
    saltwm.load(tmp_path / "out")


# --- the card -------------------------------------------------------------------------------------------------------


def cell(method, seed, successes, sha256, n=50, protocol="paper", **settings):
    planner = {"kind": "cem"} | settings if sha256 else {}
    evaluation = Evaluation(
        "two-room", method, protocol, 5, planner, "tasks.json", f"tasks-{protocol}-{seed}", None, sha256, seed,
        Rate(successes, n, 0.0, 1.0), None, 1.0,
    )  # fmt: skip
    return Cell(f"{method}-{protocol}-{seed}", evaluation, ())


def test_rates_are_pooled_over_seeds_with_the_random_policy_of_the_same_tasks(shipped):
    mine = durable.sha256(shipped / durable.MANIFEST)
    cells = [cell("salt", seed, won, mine) for seed, won in ((3, 50), (1, 45), (2, 40))]
    cells += [cell("random", seed, 10, None) for seed in (1, 2, 3)] + [cell("salt", 1, 7, "another model")]
    ((row, random, before_rounding),) = measured(shipped, cells)
    assert (row.seeds, row.rate.successes, row.rate.n, row.mean) == ((1, 2, 3), 135, 150, 90.0)
    assert row.std == pytest.approx(10.0)
    assert row.rate.low == pytest.approx(0.8415, abs=1e-3)  # Wilson, 135 of 150
    assert (random.rate.successes, random.rate.n) == (30, 150)
    assert not before_rounding


def test_another_name_or_planner_is_another_row_and_another_checkpoint_none(shipped):
    mine = durable.sha256(shipped / durable.MANIFEST)
    cells = [cell("salt", 1, 45, mine), cell("mu-0.5", 1, 10, mine), cell("salt", 2, 20, mine, candidates=7)]
    rates = measured(shipped, [*cells, cell("salt", 3, 50, "the weights that were here before")])
    counted = sorted((rate.row.method, rate.row.seeds, rate.row.rate.successes, rate.cells[0].name) for rate in rates)
    assert counted == [
        ("mu-0.5", (1,), 10, "mu-0.5-paper-1"),
        ("salt", (1,), 45, "salt-paper-1"),
        ("salt", (2,), 20, "salt-paper-2"),
    ]
    text = card_text(checkpoint.card(shipped), checkpoint.read_info(shipped), read_shipment(shipped), rates, [])
    assert "| paper, H=5 | mu-0.5 | **20.0** | 10/50, seed 1 of 1, 2 |" in text
    assert "| paper, H=5 | SALT (salt-paper-1) | **90.0** | 45/50, seed 1 of 1, 2 |" in text


def test_a_seed_that_a_suite_planned_is_missing_on_the_card_as_in_every_table(shipped):
    mine = durable.sha256(shipped / durable.MANIFEST)
    planned = [PlannedCell("two-room", "paper", 5, "salt", seed) for seed in (1, 2, 3)]
    rates = measured(shipped, [cell("salt", seed, 45, mine) for seed in (1, 2)], planned)
    text = card_text(checkpoint.card(shipped), checkpoint.read_info(shipped), read_shipment(shipped), rates, [])
    assert "| paper, H=5 | SALT | seed 3 missing | - | - | - | - |" in text


def test_rates_of_the_unrounded_weights_are_said_to_be_so(shipped):
    (rate,) = measured(shipped, [cell("salt", 1, 45, read_shipment(shipped).source_sha256)])
    assert rate.before_rounding
    assert rate.random is None
    assert measured(shipped, [cell("salt", 1, 45, "another model")]) == []


def test_a_card_names_data_commands_time_and_rates_on_one_screen(shipped, dataset):
    mine = durable.sha256(shipped / durable.MANIFEST)
    rates = measured(shipped, [cell("salt", seed, 45, mine) for seed in (1, 2, 3)])
    parts = checkpoint.card(shipped), checkpoint.read_info(shipped), read_shipment(shipped)
    text = card_text(*parts, rates, ["saltwm collect", "saltwm train"])
    for words in (
        dataset.sha256,
        "policy expert",
        "seed 0",
        "135/150",
        "90.0 ± 0.0",
        "SALT",
        "saltwm collect",
        "cores",
    ):
        assert words in text
    assert len(text.splitlines()) < 45
    assert "Nothing yet" in card_text(*parts, [], [])


def test_a_card_says_what_the_objective_was_and_takes_an_environment_of_one_s_own(shipped):
    facts, info, shipment = checkpoint.card(shipped), checkpoint.read_info(shipped), read_shipment(shipped)
    assert "# SALT on Two-Room\n\nA state-affine latent world model, trained by recursive rollout: " in card_text(
        facts, info, shipment, [], []
    )
    world = dataclasses.replace(info.world, environment="my-own")
    recipe = dataclasses.replace(shipment.data, world=world)
    for data in (recipe, None):
        text = card_text(
            facts | {"environment": "my-own", "objective": "one-step"},
            dataclasses.replace(info, world=world),
            dataclasses.replace(shipment, data=data),
            [],
            [],
        )
        assert "# SALT on my-own\n\nA state-affine latent world model, trained by one-step prediction: " in text


CHANGES = (
    {},
    {"model": {"latent_dim": 64}, "train": {"steps": 700, "learning_rate": 3e-4}},
    {"objective": {"starts": 3, "sigreg_weight": 0.5}, "train": {"split": "window", "seed": 4}},
)


@pytest.mark.parametrize("changes", CHANGES)
@pytest.mark.parametrize("model", ["salt", "lewm"])
def test_the_training_command_on_a_card_gives_the_config_of_the_run(model, changes, monkeypatch, tmp_path):
    import tyro

    config = run_config("cpu", model)
    for room, values in changes.items():
        config = dataclasses.replace(config, **{room: dataclasses.replace(getattr(config, room), **values)})
    command = spell(Train.of(config, tmp_path, tmp_path / "run"))
    assert tyro.cli(Train, args=command.split()[2:]).config() == config


def test_a_config_that_no_command_gives_is_not_spelled(tiny, tmp_path):
    assert Train.of(tiny, tmp_path, tmp_path) is None
    config = run_config("cpu")
    odd = dataclasses.replace(config, model=dataclasses.replace(config.model, smoothed_dim=3))
    assert Train.of(odd, tmp_path, tmp_path) is None


def test_a_card_tells_a_model_with_memory_from_one_without(shipped):
    facts, info, shipment = checkpoint.card(shipped), checkpoint.read_info(shipped), read_shipment(shipped)
    assert card_text(facts, info, shipment, [], []).startswith("# SALT on Two-Room\n")
    affine = dataclasses.replace(info.run.model.affine, memory=True)
    run = dataclasses.replace(info.run, model=dataclasses.replace(info.run.model, affine=affine))
    text = card_text(facts, dataclasses.replace(info, run=run), shipment, [], [])
    assert text.startswith("# SALT with memory on Two-Room\n")
    assert "a state of two latents and the action between them" in text


def test_a_run_that_is_not_shipped_has_a_card_too(run, tmp_path):
    mine = checkpoint.identity(checkpoint.find_checkpoint(run))
    won = [task < 45 for task in range(50)]
    write_cell(tmp_path / "results", small_cell("salt-clean", "salt", won, checkpoint_sha256=mine))
    card = Card(run, tmp_path / "results").do()
    assert card == tmp_path / "results" / "cards" / f"{run.name}.md"
    text = card.read_text()
    assert "Its weights are not shipped; the commands below make them again." in text
    assert "saltwm ship" not in text
    assert "| clean, H=5 | SALT | **90.0** | 45/50 |" in text
    assert Card(run, tmp_path / "results", out=tmp_path / "mine.md").do() == tmp_path / "mine.md"


def test_a_card_has_what_a_study_changed_in_its_title(shipped):
    facts, info, shipment = checkpoint.card(shipped), checkpoint.read_info(shipped), read_shipment(shipped)
    usual = run_config("cpu")
    changed = dataclasses.replace(
        usual,
        objective=dataclasses.replace(usual.objective, sigreg_weight=0.03),
        train=dataclasses.replace(usual.train, seed=2),
    )
    titles = [
        card_text(facts, dataclasses.replace(info, run=run), shipment, [], []).splitlines()[0]
        for run in (usual, changed)
    ]
    assert titles == ["# SALT on Two-Room", "# SALT on Two-Room, lambda 0.03, seed 2"]


def test_a_checkpoint_that_was_not_shipped_is_said_to_be_none(run):
    with pytest.raises(SaltError, match="not a shipped checkpoint"):
        read_shipment(checkpoint.find_checkpoint(run))
