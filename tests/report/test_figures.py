"""What the page's figures count, read from their axes."""

import pytest
from matplotlib.figure import Figure

from saltwm.report import figures
from saltwm.report.figures import Series


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
