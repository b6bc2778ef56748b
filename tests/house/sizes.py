"""Sizes of the house: lines, public names and lengths of functions, ring by ring. `make sizes` prints them."""

import ast
import statistics
from pathlib import Path

HOUSE = Path(__file__).parents[2] / "saltwm"

PAPER = (
    "model/actions.py",
    "model/affine.py",
    "model/encoder.py",
    "model/layers.py",
    "model/orthogonal.py",
    "model/transformer.py",
    "model/transition.py",
    "model/world_model.py",
    "objective.py",
    "losses/sigreg.py",
    "data/split.py",
    "data/windows.py",
    "train.py",
    "planning/agent.py",
    "planning/cem.py",
    "planning/costs.py",
    "planning/policy.py",
    "evaluation/anatomy.py",
    "evaluation/protocols.py",
    "evaluation/rollout.py",
    "evaluation/statistics.py",
    "evaluation/tasks.py",
    "diagnostics/decoder.py",
    "diagnostics/jacobians.py",
    "diagnostics/probe.py",
    "diagnostics/propagation.py",
)
"""What the paper describes: the two models, how they learn, plan and are scored, and what is measured of them."""

BEYOND = {
    "the same numbers in less time": ("model/cached_rollout.py", "model/folded.py", "losses/sigreg_kernel.py"),
    "many processes, and reading ahead": ("model/processes.py", "losses/batch.py", "data/batches.py"),
    "tables by which the rest of the house finds a model, an objective or a planner": (
        "model/traits.py",
        "losses/regulariser.py",
        "losses/table.py",
        "planning/names.py",
        "planning/planners.py",
    ),
    "other planners, and one's own": (
        "planning/gauss_newton.py",
        "planning/gradient.py",
        "planning/icem.py",
        "planning/mppi.py",
        "planning/own.py",
    ),
    "a transition of one's own": ("model/own.py",),
    "planning with a model that is being trained": ("model/modes.py",),
    "an action prior, and looks between the blocks of a plan": (
        "planning/looks.py",
        "planning/map.py",
        "planning/prior.py",
        "planning/prior_files.py",
        "planning/prior_learning.py",
        "planning/with_prior.py",
    ),
    "objectives of other papers, and one's own": (
        "losses/cosine.py",
        "losses/covariance.py",
        "losses/inverse.py",
        "losses/own.py",
        "losses/similarity.py",
        "losses/straightening.py",
        "losses/subspaces.py",
        "losses/triplet.py",
        "losses/variance.py",
        "evaluation/lineup.py",
        "evaluation/sweep.py",
    ),
    "DINO-WM, whose encoder is frozen": ("data/features.py", "model/dinov2.py", "model/patches.py"),
    "the small presets' encoder, and other runtimes": ("model/convolutions.py", "model/exportable.py"),
    "a run's journal and checkpoints": ("monitors.py", "run_session.py"),
    "which methods met and which is better, and whether costs order states": (
        "evaluation/contests.py",
        "evaluation/paired.py",
        "diagnostics/cost_order.py",
    ),
    "states of recordings, and stretches to measure on": ("data/fields.py", "data/stretches.py"),
}
"""What stands in the paper's rooms beside it, by its reason."""

ROOMS = {
    "ground, disk, processes": ("ground", "disk", "processes"),
    "environments": ("envs",),
    "jobs and command line": ("jobs", "cli"),
    "report": ("report",),
    "explorer": ("explore",),
    "other people's formats": ("interop",),
    "benchmarks": ("bench",),
}


def rings():
    """Every Python file of the product under the name of its ring."""
    of_paper = [HOUSE / name for name in PAPER]
    beyond = [HOUSE / name for names in BEYOND.values() for name in names]
    found = {"the paper": of_paper, "beyond the paper, in its rooms": beyond}
    for ring, rooms in ROOMS.items():
        found[ring] = sorted(file for room in rooms for file in (HOUSE / room).rglob("*.py"))
    known = {file for files in found.values() for file in files}
    found["doors"] = sorted(file for file in HOUSE.rglob("*.py") if file not in known)
    return found


def lines(file):
    return len(file.read_text().splitlines())


def public_names(file):
    """Functions and classes at the top of a module that do not begin with an underscore."""
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names = [node.name for node in ast.parse(file.read_text()).body if isinstance(node, defined)]
    return [name for name in names if not name.startswith("_")]


def function_lengths(file):
    """Lines of each function, its decorators left out."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [n.end_lineno - n.lineno + 1 for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, functions)]


def main():
    print(f"{'ring':34} {'files':>5} {'lines':>7} {'public names':>13} {'functions':>10}   median, p90, longest")
    everything = []
    for ring, files in rings().items():
        everything += files
        print(row(ring, files))
    print(row("product", everything))


def row(name, files):
    lengths = sorted(length for file in files for length in function_lengths(file)) or [0]
    p90 = lengths[int(0.9 * (len(lengths) - 1))]
    numbers = f"{len(files):5} {sum(map(lines, files)):7,} {sum(len(public_names(file)) for file in files):13,}"
    return f"{name:34} {numbers} {len(lengths):10,}   {statistics.median(lengths):g}, {p90}, {lengths[-1]}"


if __name__ == "__main__":
    main()
