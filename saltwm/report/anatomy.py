"""Where two methods fail on the same tasks: a page with the counts, and a page for each failed episode."""

import itertools
import re
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from saltwm.disk import durable
from saltwm.disk.records import Cell, EpisodeRecord, PlanRecord, Rate
from saltwm.evaluation.anatomy import MISMATCH_RATIO, FailedEpisode, PairedAnatomy, failed_episodes
from saltwm.evaluation.contests import Comparison
from saltwm.report import figures, tables
from saltwm.report.figures import Drawing, Series
from saltwm.report.findings import Picture, read_pictures
from saltwm.report.table import NONE, Entry, Table, plain_text, table, terminal
from saltwm.report.templates import template

if TYPE_CHECKING:
    from rich.console import Group

KINDS = {
    "mismatch": "The second plan's first elite cost c is more than five times ĉ, the cost that the first plan ended "
    "with. c is the predicted end of a hardly optimised plan, so the model's error and the early stage of the second "
    "search both raise it.",
    "unflagged": "The second plan's first elite cost c is at most five times ĉ, the cost that the first plan ended "
    "with: the model's own costs do not flag this failure.",
    "unclassified": "There was no second plan, or nothing was predicted: the costs say nothing.",
}


@dataclass(frozen=True)
class _Side:
    """One of the two methods: its name and how often it failed in which way."""

    label: str
    method: str
    episodes: int
    kinds: tuple[Rate, ...]
    """In the order of KINDS."""


@dataclass(frozen=True)
class _Listed:
    """A failed episode as the index lists it."""

    one: FailedEpisode
    label: str
    other_label: str
    page: str | None
    """File name of its page, if it has one."""


@dataclass(frozen=True)
class _Contest:
    """Both methods in one environment under one protocol and horizon."""

    title: str
    pair: PairedAnatomy
    sides: tuple[_Side, _Side]
    counts: Table
    same_tasks: Table
    failures: Table | None
    drawings: tuple[Drawing, ...]


_PAGE = re.compile(r"failure-[0-9]{3,}\.html", re.ASCII)
PICTURES = "pictures"
"""Folder beside the pages: films of failures that the results folder has none of."""


def write_anatomy(
    results: Path,
    cells: Mapping[str, Cell],
    pairs: Sequence[PairedAnatomy],
    out: Path,
    shown: Sequence[Sequence[FailedEpisode]] = (),
) -> Path:
    """Write OUT/index.html, and a page for each failure in `shown`, those of each pair; returns the index's path."""
    durable.make_folder(out)
    contests, numbers = [], itertools.count(1)
    pages: set[str] = set()
    with_page = {(one.cell.name, one.other_cell.name, one.failure.task) for chosen in shown for one in chosen}
    for pair in pairs:
        failed = tuple(
            _listed(one, next(numbers) if (one.cell.name, one.other_cell.name, one.failure.task) in with_page else None)
            for one in failed_episodes(pair, cells)
        )
        for listed in failed:
            if listed.page is not None:
                durable.write_text(out / listed.page, _episode_page(results, out, listed))
        contests.append(_contest(pair, failed))
        pages |= {listed.page for listed in failed if listed.page is not None}
    first, second = contests[0].sides
    title = f"Where {first.label} and {second.label} fail"
    text = template("anatomy.html").render(title=title, contests=contests, results=str(results))
    durable.write_text(out / "index.html", text)
    remove_earlier(out, _PAGE, pages)
    return out / "index.html"


def remove_earlier(folder: Path, form: re.Pattern[str], kept: Collection[str]) -> None:
    """Remove the files that an earlier report of more left here: names of this form, never a link or a second name."""
    if folder.is_symlink():
        return
    for path in sorted(folder.iterdir()):
        found = path.lstat()
        is_own_file = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
        if is_own_file and form.fullmatch(path.name) and path.name not in kept:
            path.unlink()


def anatomy_table(pairs: Iterable[PairedAnatomy]) -> "Group":
    """The counts for the terminal."""
    from rich.console import Group

    parts: list[object] = []
    for pair in pairs:
        contest = _contest(pair, ())
        c = pair.outcomes
        a, b = (side.label for side in contest.sides)
        outcome = f"  reached by both {c.both}, only {a} {c.only_a}, only {b} {c.only_b}, neither {c.neither}"
        verdict = f"  {tables.verdict_sentence(c, {})}"
        parts += [plain_text(contest.title, "bold"), terminal(contest.counts), plain_text(outcome)]
        parts += [plain_text(verdict), ""]
    return Group(*parts[:-1])  # type: ignore[arg-type]


def _counts(sides: Iterable[_Side]) -> Table:
    """How often each method failed in which way."""
    rows: list[tuple[Entry | str, ...]] = [
        (Entry(side.label, mark=side.method), str(side.episodes), *(_share(rate, side.method) for rate in side.kinds))
        for side in sides
    ]
    return Table("", ("method", "episodes", *KINDS), tuple(rows))


def _share(rate: Rate, method: str) -> Entry:
    interval = (100 * rate.low, rate.percent, 100 * rate.high)
    return Entry(f"{rate.successes} ({rate.percent:.1f} %)", mark=method, interval=interval)


def _same_tasks(c: Comparison, a: str, b: str) -> Table:
    """How the outcomes of both methods meet, task by task."""
    rows = ((f"{a} reached", str(c.both), str(c.only_a)), (f"{a} failed", str(c.only_b), str(c.neither)))
    return Table("", ("same tasks", f"{b} reached", f"{b} failed"), rows)


def _failures(failed: Iterable[_Listed]) -> Table | None:
    """A row for each failed episode."""
    header = ("task", "failed by", "seed", "kind", "promised ĉ", "found c", "r", "closest", "the other")
    return table("", header, map(_failure_row, failed), words=("failed by", "kind", "the other"))


def _failure_row(listed: _Listed) -> tuple[Entry | str, ...]:
    one, failure = listed.one, listed.one.failure
    return (
        Entry(f"task {one.episode.task}", link=listed.page or ""),
        Entry(listed.label, mark=one.cell.evaluation.method),
        str(one.cell.evaluation.seed),
        failure.kind,
        _or_none(failure.predicted_cost, "%.3g"),
        _or_none(failure.observed_cost, "%.3g"),
        _or_none(failure.ratio, "%.2g"),
        f"{one.episode.closest_distance:.2f}",
        f"{listed.other_label}: {one.other.reason}",
    )


def _or_none(number: float | None, form: str) -> str:
    return NONE if number is None else form % number


def _plans(plans: Iterable[PlanRecord]) -> Table | None:
    """What each plan of an episode found when its search began, and what it promised."""
    rows = (
        (str(number), str(plan.step), f"{plan.elite_costs[0]:.4g}", f"{plan.elite_costs[-1]:.4g}")
        for number, plan in enumerate(plans, 1)
    )
    return table("", ("plan", "made at step", "first elite cost", "promised"), rows)


def _listed(one: FailedEpisode, number: int | None) -> _Listed:
    label, other_label = (tables.method_title(cell.evaluation.method) for cell in (one.cell, one.other_cell))
    return _Listed(one, label, other_label, None if number is None else f"failure-{number:03d}.html")


def _contest(pair: PairedAnatomy, failed: tuple[_Listed, ...]) -> _Contest:
    c = pair.outcomes
    sides = tuple(
        _Side(tables.method_title(method), method, anatomy.mismatch.n, tuple(getattr(anatomy, kind) for kind in KINDS))
        for method, anatomy in ((c.method_a, pair.a), (c.method_b, pair.b))
    )
    return _Contest(
        tables.contest_name(c),
        pair,
        (sides[0], sides[1]),
        _counts(sides),
        _same_tasks(c, sides[0].label, sides[1].label),
        _failures(failed),
        tuple(_drawings(pair)) if failed else (),
    )


def _drawings(pair: PairedAnatomy) -> Iterable[Drawing]:
    methods = ((pair.outcomes.method_a, pair.a), (pair.outcomes.method_b, pair.b))
    series = figures.told_apart((tables.method_title(method), method) for method, _ in methods)
    shown = [(one, anatomy) for one, (_, anatomy) in zip(series, methods, strict=True)]
    yield figures.failure_bars("Failures by kind", shown, size=(4.2, 2.5))
    if any(failure.ratio for _, anatomy in shown for failure in anatomy.failures):
        yield figures.failure_ratios("Cost ratio of failures", shown, MISMATCH_RATIO, size=(4.2, 2.5))


def _episode_page(results: Path, out: Path, listed: _Listed) -> str:
    one, e = listed.one, listed.one.cell.evaluation
    plans = [plan for plan in one.episode.plans if plan.elite_costs]
    series, end = Series(listed.label, e.method), one.episode.steps_taken
    drawing = figures.elite_costs("Found and promised", plans, series, end) if plans else None
    return template("episode.html").render(
        title=f"Task {one.episode.task}: {listed.label}, {one.episode.reason}",
        where=f"{tables.contest_name(e)}, seed {e.seed}",
        listed=listed,
        one=one,
        kind=KINDS[one.failure.kind],
        plans=_plans(plans),
        drawing=drawing,
        pictures=_pictures(results, out, one.cell, one.episode),
        other_pictures=_pictures(results, out, one.other_cell, one.other),
        results=str(results),
    )


def _pictures(results: Path, out: Path, cell: Cell, episode: EpisodeRecord) -> list[Picture]:
    """The strip and the moving picture of one episode, if they were drawn; the strip first."""
    stem = f"{episode.picture}."
    drawn = read_pictures(results / "evaluations" / cell.name / "pictures", cell.name, stem)
    found = drawn or read_pictures(out / PICTURES / cell.name, cell.name, stem)
    return sorted(found, key=lambda picture: picture.kind == "gif")
