"""docs/training.md shows the presets as they are."""

from pathlib import Path

from saltwm.jobs.presets import PRESETS, run_config
from saltwm.jobs.train import IN_FILES

MANUAL = Path(__file__).parent.parent / "docs" / "training.md"


def blocks(config):
    encoder = config.model.encoder
    return "-" if encoder.kind == "conv" else (encoder.depth, encoder.heads, encoder.mlp_dim)


def predictor(config):
    transformer = config.model.transformer
    return transformer.depth, transformer.heads, transformer.head_dim


def window(config):
    objective = config.objective
    return objective.rollout_steps, objective.starts, objective.window_blocks + 1


ROWS = {
    "encoder": lambda c: c.model.encoder.kind,
    "patch size": lambda c: c.model.encoder.patch_size if c.model.encoder.kind == "vit" else "-",
    "blocks, heads, feed-forward": blocks,
    "channels of the convolutions": lambda c: c.model.encoder.channels or "-",
    "latent size d": lambda c: c.model.latent_dim,
    "modes R": lambda c: c.model.affine.modes,
    "LeWM's predictor: blocks, heads, head size": predictor,
    "rollout K, starts, frames of a window": window,
    "frameskip": lambda c: c.model.frameskip,
    "lambda": lambda c: c.objective.sigreg_weight,
    "SIGReg knots, projections": lambda c: (c.objective.sigreg_knots, c.objective.sigreg_projections),
    "batch": lambda c: c.train.batch_size,
    "length": lambda c: f"{c.train.epochs:g} epochs" if c.train.steps is None else f"{c.train.steps} steps",
    "learning rate": lambda c: c.train.learning_rate,
    "weight decay": lambda c: c.train.weight_decay,
    "warm-up, then a cosine to 0": lambda c: f"{c.train.warmup_fraction:.0%} of the steps",
    "gradient clip": lambda c: c.train.gradient_clip,
    "precision": lambda c: c.train.precision,
    "split, seed, share held out": lambda c: (c.train.split, c.train.split_seed, c.train.validation_fraction),
    "measured, saved every": lambda c: (c.train.validate_every, c.train.save_every),
}


PLACES = {
    "warm-up, then a cosine to 0": "App. B.2; per step in the authors' code",
    "modes R": "App. B.3",
    "rollout K, starts, frames of a window": "App. B.4",
    "frameskip": "App. B.4",
    "split, seed, share held out": "App. B.1",
    "LeWM's predictor: blocks, heads, head size": "LeWM",
    "channels of the convolutions": "",
    "measured, saved every": "",
}
"""Where the paper gives a value, if not in App. B.2."""


def spelled(value):
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def preset_table():
    lines = ["| | `full-size` | in the paper | `cpu` | `quick` |", "|---|---|---|---|---|"]
    for name, read in ROWS.items():
        paper, cpu, quick = (spelled(read(PRESETS[preset])) for preset in ("paper", "cpu", "quick"))
        lines.append(f"| {name} | {paper} | {PLACES.get(name, 'App. B.2')} | {cpu} | {quick} |")
    return "\n".join(lines)


def test_a_preset_has_in_python_the_name_that_a_command_gives_it():
    assert [run_config(word) for word in IN_FILES] == [run_config(name) for name in IN_FILES.values()]


def test_the_table_of_presets_is_that_of_the_code():
    assert preset_table() in MANUAL.read_text(), f"put this into {MANUAL}:\n{preset_table()}"
