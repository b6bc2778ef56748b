"""What the README and the first page of the documents show is what there is."""

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
from PIL import Image

from saltwm.cli import INNER, VERBS
from saltwm.jobs.job import spell
from saltwm.jobs.reproduce import Reproduce

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
START = (ROOT / "docs" / "start.md").read_text()


def test_the_python_example_reaches_its_goal(monkeypatch):
    monkeypatch.chdir(ROOT)
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, object] = {}
    exec(example, names)
    assert names["reached"] is True


def drawing(name):
    """A program of docs/pictures, imported."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "pictures" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_film_at_the_top_tells_what_the_records_say():
    draw_films = drawing("draw_films")
    for cell in draw_films.CELLS.values():
        lines = (draw_films.EVALUATIONS / cell / "episodes.jsonl").read_text().splitlines()[: draw_films.TASKS]
        for film, episode in zip(draw_films.films(cell), map(json.loads, lines), strict=True):
            words = "reached in {} steps" if episode["success"] else "not reached in {}"
            assert film.status(episode["steps_taken"])[0] == words.format(episode["steps_taken"])


def test_the_film_at_the_top_is_what_its_program_draws():
    pages, times = drawing("draw_films").pages()
    with Image.open(ROOT / "docs" / "pictures" / "films.gif") as film:
        shown = [film.seek(index) or (film.info["duration"], film.convert("RGB")) for index in range(film.n_frames)]
    assert [duration for duration, _ in shown] == times
    for (_, stored), page in zip(shown, pages, strict=True):
        far = (np.abs(np.asarray(stored, int) - np.asarray(page, int)).max(-1) > 64).sum()
        assert far < 100  # a palette is coarse, and fonts differ by an edge; one step further 343 pixels or more change


def test_the_demo_s_verbs_are_those_that_are_shown():
    demo = Reproduce("two-room", Path("work/demo"), "quick")
    for verb in (*demo.of("two-room"), *demo.closing()):
        assert spell(verb) in START


def test_every_verb_is_in_the_list_of_verbs():
    names = {*VERBS} - {*INNER} | {f"{group} {verb}" for group, verbs in INNER.items() for verb in verbs}
    assert not {name for name in names if f"`{name}`" not in START}
