"""Who met whom: the cells of each method, its training seeds together, and every pair of methods on shared tasks."""

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, get_args

from saltwm.disk import durable
from saltwm.disk.records import Cell, Evaluation, method_words
from saltwm.evaluation.paired import NOTHING_SHOWN, PairedDifference, paired_difference, trainings_agree
from saltwm.ground.config import PlannerConfig
from saltwm.ground.errors import MismatchError
from saltwm.ground.strict_json import to_plain

# Methods later in the list are what earlier ones are measured against; a user's own method comes first.
_YARDSTICKS = ("salt", "lewm", "random")


class Contest(NamedTuple):
    """What methods must share to be compared: an environment, a protocol and a planning horizon."""

    environment: str
    protocol: str
    horizon_blocks: int


class Contested(Protocol):
    """Whatever belongs to a contest: an evaluation, a comparison, a row of a table."""

    @property
    def environment(self) -> str: ...  # noqa: D102

    @property
    def protocol(self) -> str: ...  # noqa: D102

    @property
    def horizon_blocks(self) -> int: ...  # noqa: D102


def contest_of(one: Contested) -> Contest:
    """The contest that it belongs to."""
    return Contest(one.environment, one.protocol, one.horizon_blocks)


@dataclass(frozen=True)
class Comparison(PairedDifference):
    """Two methods on the same tasks: which, where, and the difference between them."""

    environment: str
    protocol: str
    horizon_blocks: int
    method_a: str
    method_b: str
    cells_a: tuple[str, ...]
    """Names of the evaluations behind method_a; more than one where evaluation seeds are pooled."""
    cells_b: tuple[str, ...]
    """Those behind method_b, on the same task sets in the same order; one without training may meet several."""
    by_training_seed: tuple[float, ...]
    """Points that a is ahead with each training seed; one number where there is but one."""


def compare(a: Sequence[Cell], b: Sequence[Cell]) -> Comparison:
    """Compare two methods, each evaluated on the same task sets (one per evaluation seed) in any order.

    Where both were trained with several seeds, tasks are paired inside training seeds. A task is then met several
    times, and counts as one in the test and in the interval.
    """
    _require_no_repeats(a)
    _require_no_repeats(b)
    in_a, in_b = on_shared_tasks(a, b)
    if {c.name for c in (*a, *b)} != {c.name for c in (*in_a, *in_b)} or not in_a:
        sets_a, sets_b = ([cell.evaluation.tasks_sha256 for cell in side] for side in (a, b))
        raise MismatchError(
            f"{_names(a)} and {_names(b)} were not evaluated on the same tasks "
            f"({_short(sets_a)} and {_short(sets_b)}); evaluate both with the same tasks file"
        )
    for cell_a, cell_b in zip(in_a, in_b, strict=True):
        if [episode.task for episode in cell_a.episodes] != [episode.task for episode in cell_b.episodes]:
            raise MismatchError(f"{cell_a.name} and {cell_b.name}: their episodes are not of the same tasks in order")
    tasks = [(cell.evaluation.tasks_sha256, episode.task) for cell in in_a for episode in cell.episodes]
    result = paired_difference(outcomes(in_a), outcomes(in_b), tasks)
    by_seed = ahead_by_training_seed(in_a, in_b, lambda cell: sum(outcomes([cell])))
    first, other = in_a[0].evaluation, in_b[0].evaluation
    return Comparison(
        environment=first.environment,
        protocol=first.protocol,
        horizon_blocks=first.horizon_blocks,
        method_a=method_of(first),
        method_b=method_of(other),
        cells_a=tuple(cell.name for cell in in_a),
        cells_b=tuple(cell.name for cell in in_b),
        by_training_seed=by_seed,
        **to_plain(result) | ({} if trainings_agree(by_seed) else {"verdict": NOTHING_SHOWN}),
    )


def ahead_by_training_seed(a: Sequence[Cell], b: Sequence[Cell], counted: Callable[[Cell], int]) -> tuple[float, ...]:
    """Points that a is ahead of b in what is counted, with each training seed; cells that met stand in one place."""
    sums: dict[int | None, list[int]] = {}
    for x, y in zip(a, b, strict=True):
        seeds = [training_seed(cell.evaluation) for cell in (x, y)]
        of_seed = sums.setdefault(next((s for s in seeds if s is not None), None), [0, 0])
        of_seed[0] += counted(x) - counted(y)
        of_seed[1] += len(x.episodes)
    return tuple(100 * ahead / n for _, (ahead, n) in sorted(sums.items(), key=lambda item: item[0] or 0))


def family(evaluation: Evaluation) -> str:
    """salt, lewm, random, or a user's own name."""
    if evaluation.variant:
        return evaluation.variant.model
    model = evaluation.method.partition("-")[0]  # a record of before there were variants: salt-gauss-newton
    return model if evaluation.checkpoint and model in _YARDSTICKS else evaluation.method


def training_seed(evaluation: Evaluation) -> int | None:
    """The seed that the model was trained with; none where there is no model, or the record does not say."""
    return evaluation.variant.seed if evaluation.variant else None


def has_usual_planner(evaluation: Evaluation) -> bool:
    """Whether the planner has its kind's own settings."""
    return not evaluation.planner or evaluation.planner in _usual_planners()


@functools.cache
def _usual_planners() -> tuple[dict[str, Any], ...]:
    """Each kind with its own settings, as records have them."""
    return tuple(to_plain(planner()) for planner in get_args(PlannerConfig))


def is_blind_cem(evaluation: Evaluation) -> bool:
    """Whether CEM planned as the paper runs it: blind, with its own settings. A policy without a planner counts too."""
    return is_blind_with("cem", evaluation)


def is_blind_with(planner: str, evaluation: Evaluation) -> bool:
    """Whether a planner of that kind planned, with its own settings and without a look in between."""
    e = evaluation
    return e.planner.get("kind", "cem") == planner and has_usual_planner(e) and e.look_every is None


def method_of(evaluation: Evaluation) -> str:
    """One name for one method, whatever its folder is called: salt, lewm-history3, salt-R-0.

    It comes from what was recorded about the model, so that an ablation never bears the name of the model itself.
    """
    e = evaluation
    if e.variant is None:
        return e.method
    words = [e.variant.model, *(departure.replace(" ", "-") for departure in e.variant.departures)]
    words += method_words(str(e.planner.get("kind", "")), e.history_frames, e.look_every)
    words += [] if has_usual_planner(e) else [durable.sha256_json(e.planner)[:6]]
    return "-".join(words)


def method_key(evaluation: Evaluation) -> tuple[str, str, str]:
    """What makes a method: its name, its recipe (or weights, wherever they lie), its planner and how often it looks.

    Training seeds of one recipe are one method; two recipes of SALT are two.
    """
    variant = evaluation.variant
    planner = durable.sha256_json(evaluation.planner)
    looks = "" if evaluation.look_every is None else f"-look{evaluation.look_every}"
    # Each training seed has an action prior of its own; without a variant the prior's hash tells two apart.
    prior = "" if variant else evaluation.prior_sha256 or ""
    return method_of(evaluation), learnt_by(evaluation), planner + looks + prior


def learnt_by(evaluation: Evaluation) -> str:
    """Hash of the recipe that its model was trained by, all training seeds together; of its weights without one."""
    variant = evaluation.variant
    return (variant.recipe_sha256 if variant else evaluation.checkpoint_sha256) or ""


def have_several_priors(cells: Iterable[Cell]) -> bool:
    """Whether one set of weights was evaluated with several action priors: then these are several methods."""
    pairs = {(cell.evaluation.checkpoint_sha256, cell.evaluation.prior_sha256) for cell in cells}
    return len({weights for weights, _ in pairs}) < len(pairs)


def may_meet(a: Sequence[Cell], b: Sequence[Cell]) -> bool:
    """Whether a test may pair two methods: they look equally often, or one has no planner and no look to choose."""
    first, other = a[0].evaluation, b[0].evaluation
    return first.look_every == other.look_every or not (first.planner and other.planner)


def comparisons(cells: Iterable[Cell]) -> list[Comparison]:
    """Every pair of methods that met the same task sets, seeds pooled; SALT stands before LeWM, LeWM before random.

    Blind and closed-loop results are never paired.
    """
    found = []
    for _, methods in sorted(by_contest(cells).items()):
        for a, b in itertools.combinations(sorted(methods, key=_place), 2):
            met = compare_shared(a, b) if may_meet(a, b) else None
            found += [met] if met else []
    return found


def compare_shared(a: Sequence[Cell], b: Sequence[Cell]) -> Comparison | None:
    """Compare two methods where they met; None if they did not."""
    # A cell that meets several training seeds occurs in several pairs.
    in_a, in_b = (list({cell.name: cell for cell in side}.values()) for side in on_shared_tasks(a, b))
    return compare(in_a, in_b) if in_a else None


def by_contest(cells: Iterable[Cell]) -> dict[Contest, list[list[Cell]]]:
    """Who met whom: by contest, the cells of each method, its training seeds together."""
    found: dict[Contest, dict[tuple[str, str, str], list[Cell]]] = {}
    for cell in cells:
        methods = found.setdefault(contest_of(cell.evaluation), {})
        methods.setdefault(method_key(cell.evaluation), []).append(cell)
    return {
        contest: [part for group in methods.values() for part in _apart_if_repeated(group)]
        for contest, methods in found.items()
    }


def _apart_if_repeated(group: list[Cell]) -> list[list[Cell]]:
    """One method, or several: weights or names that met the same tasks with one training seed are not pooled.

    Nor are several action priors of one set of weights.
    """
    if len({_meeting(cell) for cell in group}) == len(group) and not have_several_priors(group):
        return [group]
    parts: dict[tuple[str | None, ...], list[Cell]] = {}
    for cell in group:
        e = cell.evaluation
        parts.setdefault((e.method, e.checkpoint_sha256, e.prior_sha256), []).append(cell)
    return list(parts.values())


def on_shared_tasks(a: Sequence[Cell], b: Sequence[Cell]) -> tuple[list[Cell], list[Cell]]:
    """The cells of both sides that meet, pair by pair: one task set and, where both were trained, one training seed.

    A policy without a training meets every training seed of the other.
    """
    in_a, in_b = [], []
    for x in sorted(a, key=_meeting):
        for y in b:
            seeds = {training_seed(cell.evaluation) for cell in (x, y)} - {None}
            if x.evaluation.tasks_sha256 == y.evaluation.tasks_sha256 and len(seeds) <= 1:
                in_a.append(x)
                in_b.append(y)
    return in_a, in_b


def _place(cells: Sequence[Cell]) -> tuple[object, ...]:
    """A method's place among others: yardsticks last, then by name and by run."""
    e = cells[0].evaluation
    rank = _YARDSTICKS.index(family(e)) if family(e) in _YARDSTICKS else -1
    return rank, method_of(e), e.checkpoint or "", method_key(e)


def _meeting(cell: Cell) -> tuple[str, int]:
    """Where a cell stands: its tasks, and its training seed."""
    seed = training_seed(cell.evaluation)
    return cell.evaluation.tasks_sha256, -1 if seed is None else seed


def _require_no_repeats(cells: Sequence[Cell]) -> None:
    """MismatchError if tasks occur twice with one training seed: they would be counted as independent."""
    for first, second in itertools.pairwise(sorted(cells, key=_meeting)):
        if _meeting(first) == _meeting(second):
            raise MismatchError(
                f"{first.name} and {second.name}: one method twice on the same tasks cannot be pooled; "
                "keep them in separate results folders"
            )


def outcomes(cells: Iterable[Cell]) -> list[bool]:
    """Success by task, the cells one after another."""
    return [episode.success for cell in cells for episode in cell.episodes]


def _names(cells: Sequence[Cell]) -> str:
    return ", ".join(cell.name for cell in cells) or "nothing"


def _short(hashes: Sequence[str]) -> str:
    return ", ".join(sha256[:8] for sha256 in hashes) or "none"
