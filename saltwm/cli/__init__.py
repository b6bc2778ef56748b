"""The command line: one verb per job; parse, call, print where the result is and what to run next.

Torch, Fabric and the simulators are imported inside the verbs, so that `saltwm --help` answers at once.
"""

import contextlib
import signal
import sys
from collections.abc import Iterator
from importlib.metadata import version
from types import FrameType
from typing import Annotated, Any

import tyro

from saltwm.cli.acting import Anatomy, Decode, Diagnose, Report
from saltwm.cli.bench import Bench
from saltwm.cli.exploring import Explore
from saltwm.cli.printing import say, say_error
from saltwm.cli.results import Results
from saltwm.cli.shipping import Card, Demo, Ship
from saltwm.cli.story import Doctor, Reproduce
from saltwm.cli.telling import advice, perform
from saltwm.cli.weights import Export, ImportWeights
from saltwm.ground.errors import SaltError, Stopped
from saltwm.jobs.again import Again
from saltwm.jobs.collect import Collect
from saltwm.jobs.data import Data
from saltwm.jobs.environment import Env
from saltwm.jobs.evaluate import Evaluate, Play
from saltwm.jobs.prior import Prior
from saltwm.jobs.score import Score
from saltwm.jobs.suite import Suite
from saltwm.jobs.train import Info, Train, Watch

Verb = (
    Annotated[Collect, tyro.conf.subcommand("collect")]
    | Annotated[Env, tyro.conf.subcommand("env")]
    | Annotated[Data, tyro.conf.subcommand("data")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Prior, tyro.conf.subcommand("prior")]
    | Annotated[Watch, tyro.conf.subcommand("watch")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Suite, tyro.conf.subcommand("suite")]
    | Annotated[Play, tyro.conf.subcommand("play")]
    | Annotated[Anatomy, tyro.conf.subcommand("anatomy")]
    | Annotated[Diagnose, tyro.conf.subcommand("diagnose")]
    | Annotated[Decode, tyro.conf.subcommand("decode")]
    | Annotated[Score, tyro.conf.subcommand("score")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Results, tyro.conf.subcommand("results")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Explore, tyro.conf.subcommand("explore")]
    | Annotated[Ship, tyro.conf.subcommand("ship")]
    | Annotated[Card, tyro.conf.subcommand("card")]
    | Annotated[Info, tyro.conf.subcommand("info")]
    | Annotated[ImportWeights, tyro.conf.subcommand("import-weights")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Again, tyro.conf.subcommand("again")]
    | Annotated[Doctor, tyro.conf.subcommand("doctor")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
)

DESCRIPTION = (
    "Learn state-affine latent dynamics from pixels, plan with them, and measure both honestly. "
    "`--version` says which saltwm this is; `--env my_module:MyEnv` before a verb makes your environment known to it."
)
READING = (
    tyro.conf.OmitSubcommandPrefixes,
    tyro.conf.PositionalMetavarFromFieldName,  # ENVIRONMENT, not STR
    tyro.conf.DisallowNone,  # an option is left out, not set to the word None
    tyro.conf.FlagCreatePairsOff,  # --json, without a --no-json beside it
)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `saltwm` command."""
    if (sys.argv[1:] if arguments is None else arguments) == ["--version"]:
        say(f"saltwm {version('saltwm')}")
        return
    try:
        verb = parse(with_own_environments(sys.argv[1:] if arguments is None else arguments))
        with _sigterm_is_a_stop():
            perform(verb)
    except SaltError as error:
        say_error(advice(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        say_error("stopped; nothing that was finished is lost, the same command goes on")
        sys.exit(130)


def parse(arguments: list[str] | None = None) -> Any:
    """The verb that the words stand for, not yet run."""
    words = in_todays_words(sys.argv[1:] if arguments is None else arguments)
    return tyro.cli(Verb, prog="saltwm", description=DESCRIPTION, args=words, config=READING)


def with_own_environments(words: list[str]) -> list[str]:
    """The command without `--env module:Class` at its front; each such class is brought in first."""
    while len(words) > 1 and words[0] == "--env":
        from saltwm.envs import introduce

        introduce(words[1])
        words = words[2:]
    return words


_OLD_VARIANT = {"--variant len-1": "", "--variant len": "--last-start"}
OLD_WORDS = {
    "collect": {"--variant paper": "--physics benchmark", "--variant": "--physics"},
    "train": {"--preset paper": "--preset full-size", "--no-spectral": "--free-a0"},
    "evaluate": _OLD_VARIANT,
    "play": _OLD_VARIANT,
}
"""Verb -> spellings of earlier versions, which still work, and today's."""


def in_todays_words(words: list[str]) -> list[str]:
    """The command in today's spelling."""
    words = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    for old, new in OLD_WORDS.get(words[0] if words else "", {}).items():
        length = len(old.split())
        for place in range(len(words) - length, 0, -1):
            if words[place : place + length] == old.split():
                words[place : place + length] = new.split()
    for setting in ("mu", "w"):
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
