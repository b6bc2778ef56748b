"""What helps after an error: its message as a user types things, and the command to run instead."""

import dataclasses
import re

from saltwm.ground.errors import SaltError
from saltwm.jobs.job import Job, command_line, flag

REMEDIES = {
    "collect": "make one with: saltwm collect ENV --episodes N --out {path}",
    "make a dataset": "saltwm collect and saltwm data import make one",
    "import": "import it with: saltwm data import {path} --env ENV --out data/NAME",
    "import its folder": "import the folder that it lies in with: saltwm data import {path} --out data/NAME",
    "train": "make one with: saltwm train DATASET --out {path}",
    "look at the data": "see it with: saltwm data info {path}",
    "look at the model": "see it with: saltwm info {path}",
    "append": "or add these episodes with --append",
    "own folder": "give the output a place of its own, such as --out work/NAME",
    "own run folder": "give the run a folder of its own, such as --out runs/NAME",
    "go on": "the same command goes on",
    "own name": "or give this one a name of its own with --method NAME",
    "name your environment": "make a class of your own known with: saltwm --env my_module:MyEnv VERB ... "
    "(docs/environments.md)",
    "name your model": "or before any verb: saltwm --model {path} VERB ...",
    "finish": "finish it with: saltwm again {path}",
    "evaluate": "make some with: saltwm evaluate RUN --data DATA --out {path}",
    "reproduce": "make one with: saltwm reproduce two-room --preset quick --out work/demo",
    "learn a prior": "make one with: saltwm prior {path} --data TRAINING_DATASET",
    "examine": "see: saltwm doctor",
}
"""Remedy of an error -> the command."""


def advice(error: SaltError) -> str:
    """The error's message with options as flags, and with the command that helps where there is one."""
    words = re.sub(r"`([a-z]\w*)`", lambda name: flag(name[1]) if name[1] in _options() else name[0], str(error))
    if error.remedy is None:
        return words
    return f"{words}; {REMEDIES[error.remedy].format(path=command_line(error.path or 'RUN'))}"


def _options(kind: type[Job] = Job) -> set[str]:
    """The names of all options of all jobs."""
    own = {field.name.rstrip("_") for field in dataclasses.fields(kind)}
    return own.union(*map(_options, kind.__subclasses__()))
