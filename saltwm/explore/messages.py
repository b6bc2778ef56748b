"""What the page may ask: a closed table of records with bounded fields, and answers as one header with its bytes.

A message is JSON, {"id": 7, "ask": "draw", "with": {...}}. An answer is one binary message: the id, the length of a
JSON header, the header, and the byte strings whose lengths it lists.
"""

import json
import struct
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from saltwm.ground.config import Variant
from saltwm.ground.errors import DamagedError, SaltError
from saltwm.ground.strict_json import LATER, from_plain

MOST_BYTES = 64 * 1024
"""Of a message from the page."""
LARGEST_ID = 2**31
_NUMBER, _HEAD = struct.Struct("<I"), struct.Struct("<II")

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Number = Annotated[float, Field(ge=-1e9, le=1e9)]
Index = Annotated[int, Field(ge=0, le=10**7)]
State = Annotated[tuple[Number, ...], Field(max_length=256)]
Actions = Annotated[tuple[Annotated[tuple[Number, ...], Field(max_length=64)], ...], Field(max_length=200)]
Blocks = Annotated[tuple[Annotated[tuple[Number, ...], Field(max_length=256)], ...], Field(min_length=1, max_length=20)]

MOST_HISTORY = 8
HistoryFrames = Annotated[int, Field(ge=1, le=MOST_HISTORY)]


class Request:
    """A question of the page."""


@dataclass(frozen=True)
class Catalogue(Request):
    """What there is to explore."""


@dataclass(frozen=True)
class EpisodesOf(Request):
    """Every recorded episode of a results folder."""

    results: Name


@dataclass(frozen=True)
class Episode(Request):
    """One recorded episode, repeated from its actions."""

    results: Name
    cell: Name
    task: Index


@dataclass(frozen=True)
class OfModel(Request):
    """Something of one model."""

    model: Name


@dataclass(frozen=True)
class Draw(Request):
    """A picture of a state, put right where the world does not allow it."""

    model: Name
    state: State
    variant: Variant = field(default="clean", metadata=LATER)


@dataclass(frozen=True)
class Decide(Request):
    """One look and one plan."""

    model: Name
    state: State
    goal: State
    planner: Name
    horizon_blocks: Annotated[int, Field(ge=1, le=20)]
    seed: Index
    number: Index
    """Plans made before this one: it names the plan's random numbers."""
    task: Index
    """The task whose random numbers these are."""
    bounded: bool
    """Whether actions stay inside the action space."""
    look_every: Annotated[int, Field(ge=1, le=20)] | None
    """Blocks that are carried out before the next look; None for the whole plan."""
    executed_blocks: Index
    """Since the episode began."""
    rest: Actions
    """What the last plan still holds, if anything."""
    history_frames: HistoryFrames
    """Frames that a model which looks back is shown; the authors show LeWM one."""
    past: Annotated[tuple[State, ...], Field(max_length=MOST_HISTORY - 1)]
    """States at the beginning of the last action blocks, oldest first; none before the first one."""
    past_actions: Actions
    """What was carried out from the first of them until now."""
    variant: Variant = field(default="clean", metadata=LATER)
    """Physics and success rule: those of the protocol for a recorded task."""
    goal_blocks: Annotated[int, Field(ge=1, le=1000)] | None = field(default=None, metadata=LATER)
    """Blocks until the goal is due, as the protocol of a recorded task says; None for the horizon."""


@dataclass(frozen=True)
class Advance(Request):
    """The simulator's next steps."""

    model: Name
    state: State
    goal: State
    actions: Actions
    variant: Variant = field(default="clean", metadata=LATER)


@dataclass(frozen=True)
class Command(Request):
    """The terminal's command for what Act shows."""

    model: Name
    start: State
    goal: State
    planner: Name
    horizon_blocks: Annotated[int, Field(ge=1, le=20)]
    look_every: Annotated[int, Field(ge=1, le=20)] | None
    history_frames: HistoryFrames
    seed: Index
    bounded: bool
    recorded: Episode | None = field(default=None, metadata=LATER)
    """The recorded task that start and goal are of, if they are."""


@dataclass(frozen=True)
class Imagine(Request):
    """What a model expects of action blocks, beside what happens: in the simulator, or in the stored episode."""

    model: Name
    state: State
    episode: Index
    """The stored episode that the blocks began with; it is all that is known of a world without a simulator."""
    step: Index
    blocks: Blocks


@dataclass(frozen=True)
class DatasetOf(Request):
    """Facts, statistics and lengths of a dataset."""

    dataset: Name


@dataclass(frozen=True)
class Recorded(Request):
    """Frames, actions and states of one stored episode."""

    dataset: Name
    episode: Index


REQUESTS: dict[str, type[Request]] = {
    "catalogue": Catalogue,
    "episodes": EpisodesOf,
    "episode": Episode,
    "scene": OfModel,
    "draw": Draw,
    "decide": Decide,
    "advance": Advance,
    "command": Command,
    "imagine": Imagine,
    "decompose": Imagine,
    "gallery": OfModel,
    "weights": OfModel,
    "decoder": OfModel,
    "dataset": DatasetOf,
    "recorded": Recorded,
}
RESTART = "restart"
"""The one thing that the server answers itself: an impatient page may have the worker ended and started again."""


class Refused(SaltError):
    """A message that is not a question; `id` names it where that much could be read."""

    def __init__(self, message: str, number: int = 0) -> None:
        super().__init__(message)
        self.id = number


@dataclass(frozen=True)
class Message:
    """One question of the page, checked."""

    id: int
    ask: str
    request: Request | None
    """None asks for a new worker."""


def read_message(text: str | bytes) -> Message:
    """The question in a message; Refused says what is wrong with it."""
    if not isinstance(text, str) or len(text.encode("utf-8", "surrogatepass")) > MOST_BYTES:
        raise Refused(f"message: expected text of at most {MOST_BYTES} bytes")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused("message: not JSON") from error
    if not isinstance(value, dict) or set(value) != {"id", "ask", "with"}:
        raise Refused("message: expected an object of id, ask and with")
    number, ask = value["id"], value["ask"]
    if type(number) is not int or not 0 <= number < LARGEST_ID:
        raise Refused("message: id must be a small whole number")
    if ask == RESTART:
        return Message(number, RESTART, None)
    if not isinstance(ask, str) or ask not in REQUESTS:
        raise Refused(f"message: nothing is called {ask!r:.40}", number)
    return Message(number, ask, _read_request(ask, value["with"], number))


def _read_request(ask: str, value: Any, number: int) -> Request:
    try:
        return from_plain(REQUESTS[ask], value, ask)
    except (DamagedError, ValueError, RecursionError) as error:
        raise Refused(str(error), number) from error


@dataclass(frozen=True)
class Answer:
    """A JSON header and byte strings that it speaks of, in order."""

    header: dict[str, Any]
    blobs: list[bytes] = field(default_factory=list)


def pack(number: int, answer: Answer) -> bytes:
    """An answer as one message."""
    header = {**answer.header, "blobs": [len(blob) for blob in answer.blobs]}
    text = json.dumps(header, allow_nan=False).encode()
    return b"".join([_HEAD.pack(number, len(text)), text, *answer.blobs])


def addressed(number: int, packed: bytes) -> bytes:
    """The same answer to another question's id."""
    return _NUMBER.pack(number) + packed[_NUMBER.size :]


def unpack(data: bytes) -> tuple[int, Answer]:
    """The id and the answer in a message."""
    number, length = _HEAD.unpack_from(data)
    at = _HEAD.size + length
    header = json.loads(data[_HEAD.size : at])
    blobs = []
    for size in header.pop("blobs"):
        blobs.append(data[at : at + size])
        at += size
    return number, Answer(header, blobs)
