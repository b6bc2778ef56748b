"""What the README and the first page of the documents show is what there is."""

import re
from pathlib import Path

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


def test_the_demo_s_verbs_are_those_that_are_shown():
    demo = Reproduce("two-room", Path("work/demo"), "quick")
    for verb in (*demo.of("two-room"), *demo.closing()):
        assert spell(verb) in START


def test_every_verb_is_in_the_list_of_verbs():
    names = {*VERBS} - {*INNER} | {f"{group} {verb}" for group, verbs in INNER.items() for verb in verbs}
    assert not {name for name in names if f"`{name}`" not in START}
