"""The house stays small where it must be: the paper's ring on 3,500 lines, functions on half a screen."""

import statistics

from sizes import BEYOND, HOUSE, PAPER, ROOMS, function_lengths, lines, rings

MOST_LINES_OF_THE_PAPER = 3_500


def test_the_paper_stands_on_at_most_3500_lines():
    counts = {name: lines(HOUSE / name) for name in PAPER}
    assert sum(counts.values()) <= MOST_LINES_OF_THE_PAPER, counts


def test_every_file_of_the_papers_rooms_is_counted_as_the_papers_or_named_as_beyond_it():
    named = [*PAPER, *(name for names in BEYOND.values() for name in names)]
    assert len(named) == len(set(named))
    others = {"__init__.py", "__main__.py"}
    found = {file.relative_to(HOUSE) for file in HOUSE.rglob("*.py") if file.name not in others}
    elsewhere = {room for rooms in ROOMS.values() for room in rooms}
    assert {str(name) for name in found if name.parts[0] not in elsewhere} == set(named)


def test_functions_are_short():
    lengths = [length for files in rings().values() for file in files for length in function_lengths(file)]
    assert statistics.median(lengths) <= 7
    assert statistics.quantiles(lengths, n=10)[-1] <= 19
    assert sorted(lengths)[-2] <= 60  # the longest is the table of the paper's claims
