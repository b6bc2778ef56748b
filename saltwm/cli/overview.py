"""What `saltwm --help` prints: every verb with a line, under what a person wants to do."""

import inspect
import re
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

ABOUT = "Learn from pictures how a world answers to actions, plan with what was learnt, and measure both."
CLOSING = (
    "`saltwm VERB --help` says more, with commands to begin with.",
    "`--env my_module:MyEnv` before a verb makes your environment known to it, `--model my_module:MyModel` your model; "
    "`--version` says which saltwm this is.",
)


def overview(groups: Mapping[str, Sequence[Any]]) -> str:
    """The verbs by group, in lines as wide as the terminal."""
    width = shutil.get_terminal_size().columns
    margin = max(len(job.VERB) for jobs in groups.values() for job in jobs) + 4
    lines = ["usage: saltwm VERB ...", "", *textwrap.wrap(ABOUT, width)]
    for title, jobs in groups.items():
        lines += ["", title]
        for job in jobs:
            said = textwrap.wrap(in_short(job), max(20, width - margin))
            lines += [f"  {job.VERB}".ljust(margin) + said[0], *(" " * margin + more for more in said[1:])]
    return "\n".join([*lines, "", *(line for text in CLOSING for line in textwrap.wrap(text, width))])


def in_short(job: Any) -> str:
    """What a verb does, without what else its help has to say: its first clause."""
    first = inspect.cleandoc(job.__doc__).split("\n\n")[0].replace("\n", " ")
    return re.split("[;:] ", first)[0].removesuffix(".")
