"""What the page's figures count, read from their axes."""

import matplotlib as mpl
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from saltwm.report import figures
from saltwm.report.figures import BLUE, GREY, ORANGE, Series, told_apart


def drawn_axes(draw, *arguments):
    axes = Figure().subplots()
    draw.__wrapped__(axes, "title", *arguments)
    return axes


@pytest.mark.parametrize("budget", [50, 7, 300])
def test_a_goal_reached_at_the_last_step_of_a_tenth_belongs_to_it(budget):
    steps = list(range(1, budget + 1))
    (bars,) = drawn_axes(figures.steps_to_success, [(Series("SALT", "salt"), steps, budget)], budget).containers
    expected = [sum(i * budget < 10 * step <= (i + 1) * budget for step in steps) for i in range(10)]
    assert [bar.get_height() for bar in bars] == pytest.approx([100 * count / budget for count in expected])


def test_a_task_that_was_solved_at_the_start_is_in_the_first_tenth():
    (bars,) = drawn_axes(figures.steps_to_success, [(Series("SALT", "salt"), [0, 5, 50], 4)], 50).containers
    assert [bar.get_height() for bar in bars] == [50.0, *[0.0] * 8, 25.0]


def test_a_method_has_the_colour_of_its_model_and_variants_are_told_apart():
    names = ("salt", "salt-map", "salt-gauss-newton-look1", "lewm-history3", "lewm", "random")
    series = told_apart((name, name) for name in names)
    assert [one.colour for one in series] == [ORANGE, ORANGE, ORANGE, BLUE, BLUE, GREY]
    assert [one.marker for one in series if one.repeat == 0] == ["s", "o", "^"]  # the paper's
    for told in ("shade", "marker", "line"):
        assert len({(one.colour, str(getattr(one, told))) for one in series}) == len(series)
    assert series[0].shade == ORANGE


def test_two_methods_of_a_user_that_share_a_colour_are_told_apart():
    first, second = told_apart([("mine-ab", "mine-ab"), ("mine-ba", "mine-ba")])
    assert first.colour == second.colour
    assert (first.shade, first.marker) != (second.shade, second.marker)


def test_bars_of_variants_have_their_shades():
    series = told_apart([("SALT", "salt"), ("SALT with MAP", "salt-map")])
    bars = drawn_axes(figures.steps_to_success, [(one, [3], 1) for one in series], 50).containers
    assert [to_hex(bar[0].get_facecolor()) for bar in bars] == [one.shade for one in series]


@pytest.mark.parametrize("longest", ["SALT", "SALT with MAP", "SALT with Gauss-Newton, a look after each block"])
def test_a_legend_is_no_wider_than_its_axes(longest):
    figure = Figure(figsize=figures._SIZE)
    figure.subplots_adjust(**figures._MARGINS)
    axes = figure.subplots()
    series = told_apart([(longest, f"salt-{i}") for i in range(5)])
    with mpl.rc_context(figures._STYLE):
        figures.steps_to_success.__wrapped__(axes, "title", [(one, [3], 1) for one in series], 50)
        figure.canvas.draw()
    assert axes.get_legend().get_window_extent().width <= axes.get_window_extent().width + 1
