"""What a training step costs: every part is measured, and what is wanted is wanted of the right model."""

import dataclasses

import pytest

from saltwm.bench.training import train_figures


@pytest.mark.parametrize("model", ["salt", "lewm"])
def test_a_step_is_split_into_its_parts(tiny, model):
    config = dataclasses.replace(tiny, model=dataclasses.replace(tiny.model, model=model))
    figures = {figure.what.split(": ")[1]: figure for figure in train_figures(config, episodes=12, rounds=2)}
    assert list(figures) == [
        *("training", "waiting for data", "loop / forward and backward"),
        *("encoder", "transition", "SIGReg", "optimiser", "transition + SIGReg"),
    ]
    assert all(figure.value >= 0 for figure in figures.values())
    assert figures["loop / forward and backward"].value > 1
    assert figures["encoder"].value > figures["SIGReg"].value / 100, "a part that was not run would take no time"
    assert figures["transition + SIGReg"].at_most == (0.15 if model == "salt" else None)
