"""The command line: one verb per job; parse, call, print where the result is and what to run next.

Torch, Fabric and the simulators are imported inside the verbs, so that `saltwm --help` answers at once.
"""

import contextlib
import inspect
import shutil
import signal
import sys
import textwrap
from collections.abc import Iterator
from importlib.metadata import version
from types import FrameType
from typing import Annotated, Any, NoReturn, Union, get_args

import tyro

from saltwm.cli.advice import advice
from saltwm.cli.choices import require_known_choices
from saltwm.cli.examples import EXAMPLES
from saltwm.cli.overview import ABOUT, overview
from saltwm.cli.printing import say, say_error
from saltwm.cli.telling import perform
from saltwm.ground.checks import one_of
from saltwm.ground.errors import SaltError, Stopped, UsageError, out_of_memory
from saltwm.jobs.again import Again
from saltwm.jobs.bench import Bench
from saltwm.jobs.collect import Collect
from saltwm.jobs.data import Data
from saltwm.jobs.doctor import Doctor
from saltwm.jobs.environment import Env
from saltwm.jobs.evaluate import Evaluate, Play
from saltwm.jobs.explore import Explore
from saltwm.jobs.measures import Decode, Diagnose
from saltwm.jobs.pages import Anatomy, Film, Report, Results
from saltwm.jobs.prior import Prior
from saltwm.jobs.reproduce import Reproduce
from saltwm.jobs.score import Score
from saltwm.jobs.shipping import Card, Demo, Ship
from saltwm.jobs.study import Study
from saltwm.jobs.suite import Suite
from saltwm.jobs.train import Info, Train, Watch
from saltwm.jobs.weights import Export, ImportWeights

GROUPS: dict[str, tuple[Any, ...]] = {
    "See what a model does": (Demo, Explore, Play, Info),
    "Collect and look at data": (Collect, Env, Data),
    "Train, and look on": (Train, Watch, Prior),
    "Count how often goals are reached": (Evaluate, Suite, Film, Anatomy),
    "Measure what a model knows": (Diagnose, Decode, Score),
    "Run many jobs, and report": (Reproduce, Study, Again, Report, Results),
    "Hand a model on": (Ship, Card, ImportWeights, Export),
    "Know the machine": (Doctor, Bench),
}
"""Every verb, under what a person wants to do with it."""
VERBS = {job.VERB: job for jobs in GROUPS.values() for job in jobs}
INNER = {
    verb: {get_args(job)[0].VERB.split()[1]: get_args(job)[0] for job in get_args(group.__annotations__["job"])}
    for verb, group in VERBS.items()
    if group in (Env, Data)
}
"""Verbs of verbs: data -> info, verify, ..."""

READING = (
    tyro.conf.OmitSubcommandPrefixes,
    tyro.conf.PositionalMetavarFromFieldName,  # ENVIRONMENT, not STR
    tyro.conf.DisallowNone,  # an option is left out, not set to the word None
    tyro.conf.FlagCreatePairsOff,  # --json, without a --no-json beside it
)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `saltwm` command."""
    words = sys.argv[1:] if arguments is None else arguments
    if words == ["--version"]:
        say(f"saltwm {version('saltwm')}")
        return
    if words in (["--help"], ["-h"]):
        say(overview(GROUPS))
        return
    try:
        verb = parse(_with_own_classes(words))
        with _sigterm_is_a_stop():
            perform(verb)
    except SaltError as error:
        _end(error)
    except (MemoryError, RuntimeError) as error:
        shortage = out_of_memory(error)
        if shortage is None:
            raise
        _end(shortage)
    except KeyboardInterrupt:
        say_error("stopped; nothing that was finished is lost, the same command goes on")
        sys.exit(130)


def _end(error: SaltError) -> NoReturn:
    """One line, and the exit code that scripts know."""
    say_error(advice(error))
    sys.exit(error.exit_code)


def parse(arguments: list[str]) -> Any:
    """The verb that the words stand for, not yet run."""
    words = _in_todays_words(arguments)
    if not words:
        raise UsageError("name a verb: saltwm demo shows what shipped models do, saltwm --help lists all verbs")
    if words[0].startswith("-"):
        verb: Any = Union[tuple(Annotated[job, tyro.conf.subcommand(name)] for name, job in VERBS.items())]  # noqa: UP007
        return tyro.cli(verb, prog="saltwm", description=ABOUT, args=words, config=READING)
    job, rest = _addressed(words)
    require_known_choices(job, rest)
    named = " ".join(words[: len(words) - len(rest)])
    return tyro.cli(job, prog=f"saltwm {named}", description=_description(job), args=rest, config=READING)


def _addressed(words: list[str]) -> tuple[Any, list[str]]:
    """The job that the first words name, and the words after them; UsageError with a suggestion for a typo."""
    one_of("verb", words[0], VERBS)
    inner = INNER.get(words[0])
    if inner is None or len(words) == 1 or words[1].startswith("-"):
        return VERBS[words[0]], words[1:]
    one_of(f"verb of {words[0]}", words[1], inner)
    return inner[words[1]], words[2:]


def _description(job: Any) -> str:
    """What the help of a verb begins with: what it does, and commands to begin with."""
    lines = [f"  {command}" for command in EXAMPLES.get(job.VERB, ())]
    width = shutil.get_terminal_size().columns
    paragraphs = inspect.cleandoc(job.__doc__).split("\n\n")
    # tyro joins a line that begins with a letter to the one before it, and folds none: these begin with a space
    about = "\n\n".join(textwrap.fill(one, width, subsequent_indent="  ") for one in paragraphs)
    return "\n".join([about, "", "For example:", *lines]) if lines else about


def _with_own_classes(words: list[str]) -> list[str]:
    """The command without `--env` and `--model module:Class` at its front; each such class is brought in first."""
    while len(words) > 1 and words[0] in ("--env", "--model"):
        from saltwm.envs import introduce
        from saltwm.model.own import name_model

        bring_in = introduce if words[0] == "--env" else name_model
        bring_in(words[1])
        words = words[2:]
    return words


_OLD_VARIANT = {"--variant len-1": "", "--variant len": "--last-start"}
OLD_WORDS = {
    "collect": {"--variant paper": "--physics benchmark", "--variant": "--physics"},
    "reproduce": {"--preset paper": "--preset full-size"},
    "train": {"--preset paper": "--preset full-size", "--no-spectral": "--free-a0"},
    "decode": {"--decoder paper": "--decoder attention"},
    "evaluate": _OLD_VARIANT,
    "play": _OLD_VARIANT,
}
"""Verb -> spellings of earlier versions, which still work, and today's."""
PLANNING = (["evaluate"], ["play"])
"""Verbs with one planner, whose settings once had flags."""


def _in_todays_words(words: list[str]) -> list[str]:
    """The command in today's spelling."""
    words = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    for old, new in OLD_WORDS.get(words[0] if words else "", {}).items():
        length = len(old.split())
        for place in range(len(words) - length, 0, -1):
            if words[place : place + length] == old.split():
                words[place : place + length] = new.split()
    for setting in ("mu", "w") if words[:1] in PLANNING else ():
        words = _with_the_setting_in_the_planner(words, setting) if f"--{setting}" in words[:-1] else words
    return words


def _with_the_setting_in_the_planner(words: list[str], setting: str) -> list[str]:
    """`--planner gauss-newton --mu 0.1` as `--planner gauss-newton,mu=0.1`."""
    place = words.index(f"--{setting}")
    text, rest = f",{setting}={words[place + 1]}", words[:place] + words[place + 2 :]
    if "--planner" not in rest[:-1]:
        return [*rest, "--planner", f"cem{text}"]
    rest[rest.index("--planner") + 1] += text
    return rest


@contextlib.contextmanager
def _sigterm_is_a_stop() -> Iterator[None]:
    """SIGTERM unwinds like Ctrl-C, so that locks, workers and temporary files are cleaned up."""

    def handle(number: int, frame: FrameType | None) -> None:
        raise Stopped("stopped; nothing that was finished is lost, the same command goes on", number)

    previous = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
