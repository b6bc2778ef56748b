"""Anatomy pages: the counts of the records, a page per failed episode, inert whatever the names."""

import dataclasses
import io

import pytest
from fake_results import make_results
from rich.console import Console

from saltwm.disk.durable import write_config
from saltwm.disk.records import read_cells
from saltwm.evaluation import anatomy
from saltwm.evaluation.anatomy import failed_episodes
from saltwm.evaluation.protocols import CLEAN_PROTOCOL, PAPER_PROTOCOL
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.report.anatomy import anatomy_table, write_anatomy

HOSTILE = '<script>alert("x")</script>'


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("anatomy")
    return make_results(root, ("two-room",), ("salt", "lewm", HOSTILE), (CLEAN_PROTOCOL,), seeds=(1, 2), n=20)


def pair_up(results, *methods):
    return anatomy.pair_up(results, read_cells(results), *methods)


def write(results, out, count, *methods):
    pairs = pair_up(results, *methods)
    cells = {cell.name: cell for cell in read_cells(results)}
    return write_anatomy(results, cells, pairs, out, anatomy.examples(pairs, cells, count))


@pytest.fixture(scope="module")
def pages(results, tmp_path_factory):
    out = tmp_path_factory.mktemp("pages")
    write(results, out, 5, "salt", "lewm")
    return {path.name: path.read_text() for path in out.iterdir()}


def test_every_failure_is_listed_and_follows_back_to_its_evaluation(results):
    (pair,) = pair_up(results, "salt", "lewm")
    cells = {cell.name: cell for cell in read_cells(results)}
    failed = list(failed_episodes(pair, cells))
    c = pair.outcomes
    assert len(failed) == len(pair.a.failures) + len(pair.b.failures) == c.only_a + c.only_b + 2 * c.neither
    for one in failed:
        assert one.failure.task == one.episode.task == one.other.task
        assert one.episode in cells[one.cell.name].episodes
        assert one.other in cells[one.other_cell.name].episodes
        if one.failure.observed_cost is not None:
            assert one.failure.observed_cost == one.episode.plans[1].elite_costs[0]


def test_the_index_has_the_counts_and_links_to_the_first_failures(pages, results):
    (pair,) = pair_up(results, "salt", "lewm")
    index = pages["index.html"]
    assert sorted(pages) == [*(f"failure-{i:03d}.html" for i in range(1, 6)), "index.html"]
    assert index.count('<a href="failure-') == 5
    assert index.count('<tr><th scope="row">') >= len(pair.a.failures) + len(pair.b.failures)
    for count in (pair.outcomes.both, pair.outcomes.only_a, pair.outcomes.only_b, pair.outcomes.neither):
        assert f"<td>{count}</td>" in index
    assert "no script and fetches nothing" in index
    for kind in ("Mismatch:", "Unflagged:", "Unclassified:"):
        assert kind in index


def test_a_shorter_list_leaves_no_page_of_a_longer_one_and_touches_nothing_else(results, tmp_path):
    out, outside = tmp_path / "pages", tmp_path / "outside.html"
    write(results, out, 5, "salt", "lewm")
    outside.write_text("mine")
    (out / "failure-900.html").symlink_to(outside)
    (out / "failure-901.html").hardlink_to(outside)
    (out / "failure-902.html").mkdir()
    others = {"failure-900.html", "failure-901.html", "failure-902.html", "failure-1.html", "notes.html"}
    for name in ("failure-1.html", "notes.html"):
        (out / name).write_text("mine")
    write(results, out, 2, "salt", "lewm")
    assert {path.name for path in out.iterdir()} == {"index.html", "failure-001.html", "failure-002.html", *others}
    assert outside.read_text() == "mine"


def test_a_failures_page_shows_what_was_promised_and_what_was_found(pages, results):
    (pair,) = pair_up(results, "salt", "lewm")
    failure = pair.a.failures[0]
    page = pages["failure-001.html"]
    assert f"Task {failure.task}: SALT, budget" in page
    assert f"{failure.predicted_cost:.4g}" in page
    assert f"{failure.observed_cost:.4g}" in page
    assert "data:image/svg+xml;base64," in page
    assert "LeWM on the same task" in page
    assert '<a href="index.html">' in page


def test_names_are_escaped_on_every_page(results, tmp_path):
    write(results, tmp_path, 3, HOSTILE, "salt")
    for path in tmp_path.iterdir():
        assert "<script" not in path.read_text().lower()


def test_the_terminal_shows_rates_and_paired_outcomes(results):
    buffer = io.StringIO()
    pairs = pair_up(results, "salt", "lewm")
    Console(file=buffer, width=80).print(anatomy_table(pairs))
    text = buffer.getvalue()
    assert "Two-Room, clean, H=5" in text
    assert f"reached by both {pairs[0].outcomes.both}, only SALT {pairs[0].outcomes.only_a}" in text
    assert "SALT against LeWM: " in text


def test_unknown_names_and_strangers_are_refused(results):
    with pytest.raises(UsageError, match="did you mean 'salt'"):
        pair_up(results, "slat", "lewm")
    cells = {(c.evaluation.method, c.evaluation.seed): c.name for c in read_cells(results)}
    with pytest.raises(MismatchError, match="never evaluated on the same tasks"):
        pair_up(results, cells["salt", 1], cells["lewm", 2])
    (one,) = pair_up(results, cells["salt", 1], cells["lewm", 1])
    assert one.outcomes.cells_a == (cells["salt", 1],)


def test_two_runs_under_one_name_are_two_methods(tmp_path):
    """As the paired tests have it: episodes of other weights or another planner are never pooled."""
    results = make_results(tmp_path, ("two-room",), ("salt", "lewm"), (PAPER_PROTOCOL,), seeds=(1, 2), n=10, pictures=0)
    (pair,) = pair_up(results, "salt", "lewm")
    assert pair.a.mismatch.n == 20
    second = next(c for c in read_cells(results) if (c.evaluation.method, c.evaluation.seed) == ("salt", 2))
    other = dataclasses.replace(second.evaluation, checkpoint_sha256="e" * 64)
    write_config(results / "evaluations" / second.name / "evaluation.json", other)
    assert [pair.a.mismatch.n for pair in pair_up(results, "salt", "lewm")] == [10, 10]
