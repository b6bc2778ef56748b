"""What the README shows is what there is: its Python runs, its verbs are those of the demo."""

import re
from pathlib import Path

from saltwm.jobs.job import spell
from saltwm.jobs.reproduce import Reproduce

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_python_example_reaches_its_goal(monkeypatch):
    monkeypatch.chdir(ROOT)
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, object] = {}
    exec(example, names)
    assert names["reached"] is True


def test_the_demo_s_verbs_are_those_that_are_shown():
    demo = Reproduce("two-room", Path("work/demo"), "quick")
    for verb in (*demo.of("two-room"), *demo.closing()):
        assert spell(verb) in README
