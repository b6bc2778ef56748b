"""A job is a value, and its file is its command.

A job is a frozen dataclass beside the function that does the work. Its fields are the flags, a docstring line each; its
JSON is the file in the folder that it fills; `claim` says whether a folder is its own; `spell` prints its command.
To add a verb, write such a class and add it to the table of the command line. To add an option, add a field.

A job's module is imported for `saltwm --help`: numpy, torch and the simulators are imported inside the functions.
"""

import contextlib
import dataclasses
import shlex
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar

import tyro
from tyro.conf import Positional

from saltwm.disk import durable
from saltwm.disk.claim import claim, require_own
from saltwm.ground.config import PlannerConfig
from saltwm.ground.errors import DamagedError, MismatchError
from saltwm.ground.identity import Aside, Memo
from saltwm.ground.strict_json import differences, from_plain, to_plain
from saltwm.model.own import named
from saltwm.planning.names import planner_text

__all__ = [
    "AsJson",
    "Aside",
    "Composite",
    "Filed",
    "Job",
    "Maybe",
    "MaybeSome",
    "Memo",
    "Positional",
    "ProcessCount",
    "RayAddress",
    "ResultsFolder",
    "RunFolder",
    "Some",
    "command_line",
    "flag",
    "naming_models",
    "spell",
]

T = TypeVar("T")
Maybe = Annotated[T | None, tyro.conf.arg(help_behavior_hint="")]
"""An option without a default of its own: its help says what happens without it."""
Some = Annotated[tuple[T, ...], tyro.conf.arg(help_behavior_hint="")]
"""As many as one likes, none by default."""
MaybeSome = Annotated[tuple[T, ...] | None, tyro.conf.arg(help_behavior_hint="", metavar="ONE [ANOTHER ...]")]
"""As many as one likes; giving none differs from leaving the option out."""
AsJson = Aside[Annotated[bool, tyro.conf.arg(help="Print the result as JSON.")]]
RunFolder = Annotated[Path, tyro.conf.arg(help="Run or checkpoint directory.")]
ResultsFolder = Annotated[Path, tyro.conf.arg(help="Results directory.")]
ProcessCount = Aside[Annotated[int, tyro.conf.arg(help="Processes.")]]
_RAY = "HOST:PORT of a Ray cluster's head: the processes run there, with a CPU each (needs the extra `ray`)."
RayAddress = Aside[Annotated[str | None, tyro.conf.arg(help=_RAY, help_behavior_hint="")]]


@dataclass(frozen=True)
class Job:
    """Anything that the command line does: a value with a function."""

    VERB: ClassVar[str]
    """What a person types: the name of its class, unless the class says otherwise."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "VERB" not in vars(cls):
            cls.VERB = cls.__name__.lower()

    def do(self) -> Any:
        """Do the job, and return what there is to tell; the command line prints that."""
        raise NotImplementedError


@dataclass(frozen=True)
class Composite(Job):
    """A job that is a series of others, each of which can be run by hand as it is printed."""

    def jobs(self) -> Iterable[Job]:
        """What is done, in order."""
        raise NotImplementedError

    def around(self, job: Job) -> AbstractContextManager[None]:
        """What is done before and after one of them."""
        return contextlib.nullcontext()

    def do(self) -> None:
        """Nothing more: its jobs have done it."""


@dataclass(frozen=True)
class Filed(Job):
    """A job that leaves its own JSON in the folder that it fills: every option, and the hashes of its inputs."""

    FILE: ClassVar[str] = "job.json"
    DEPTH: ClassVar[int] = 0
    """Folders between `out` and the one with the file: OUT/evaluations/CELL is two below."""
    REMEDY: ClassVar[str | None] = None
    """What helps where the folder is another job's."""

    inputs: Annotated[dict[str, str], tyro.conf.Suppress] = dataclasses.field(
        default_factory=dict, kw_only=True, hash=False
    )
    """Field -> SHA-256 of what its path leads to, once the job is begun: a path decides nothing, its content does."""

    def claim(self, folder: Path) -> None:
        """Take the folder for this job, or MismatchError that names each field in which the job there differs."""
        claim(folder / self.FILE, self, self._read, self.REMEDY)

    def require_own(self, folder: Path) -> None:
        """MismatchError that names each field in which the job there differs; nothing is taken."""
        require_own(folder / self.FILE, self, self._read, self.REMEDY)

    def begun(self, inputs: dict[str, str]) -> Self:
        """The job with the hashes of its inputs; MismatchError if it was begun on others before."""
        if different := differences(self.inputs, inputs) if self.inputs else []:
            raise MismatchError(f"the inputs are not those of the first time ({'; '.join(different)})")
        return dataclasses.replace(self, inputs=inputs)

    @classmethod
    def found_in(cls, folder: Path) -> Self | None:
        """The job whose file is in the folder, to run into where the folder lies; None if there is no such file."""
        if not (folder / cls.FILE).exists():
            return None
        found = cls._read(folder / cls.FILE)
        return dataclasses.replace(found, out=[folder, *folder.parents][cls.DEPTH])  # type: ignore[call-arg]

    @classmethod
    def _read(cls, file: Path) -> Self:
        """The job that a file holds; a field that is younger than the file has its default."""
        value = durable.read_json(file)
        if not isinstance(value, dict):
            raise DamagedError(f"{file}: expected a job's options, found {type(value).__name__}")
        return from_plain(cls, _defaults(cls) | cls.translated(value), str(file))

    @classmethod
    def translated(cls, value: dict[str, Any]) -> dict[str, Any]:
        """The options of a file, in today's words where it was written in earlier ones."""
        return value


def _defaults(kind: type[Job]) -> dict[str, Any]:
    return {
        f.name: to_plain(f.default if f.default_factory is dataclasses.MISSING else f.default_factory())
        for f in dataclasses.fields(kind)
        if dataclasses.MISSING is not f.default or f.default_factory is not dataclasses.MISSING
    }


def spell(job: Any) -> str:
    """The command of a job, without the options that have their default."""
    words: list[object] = ["saltwm", *job.VERB.split()]
    for field in dataclasses.fields(job):
        value = getattr(job, field.name)
        values = [_word(one) for one in (value if isinstance(value, tuple) else (value,))]
        marks = getattr(field.type, "__metadata__", ())
        if tyro.conf.Suppress in marks or value == field.default:
            continue
        if Positional in marks:
            words += values
        elif isinstance(value, bool):
            words.append(flag(field.name if value else f"no_{field.name}"))
        else:
            words += [flag(field.name), *values]
    return command_line(*words)


def naming_models(command: str) -> str:
    """The command with the models of one's own that were named in this process, before its verb.

    A command without a run in it wants none, and one that trains says it itself.
    """
    unsaid = [f"--model {place}" for place in named() if place not in command]
    return " ".join(["saltwm", *unsaid, command.removeprefix("saltwm ")]) if command.startswith("saltwm ") else command


def _word(value: Any) -> object:
    return planner_text(value) if isinstance(value, PlannerConfig) else value


def flag(name: str) -> str:
    """The flag of a field."""
    return "--" + name.rstrip("_").replace("_", "-")


def command_line(*words: object) -> str:
    """The words as one line that a shell takes apart again as they are."""
    return shlex.join(map(str, words))
