"""P30: mutated messages are refused one by one; the page stays up, nothing outside is read, nothing runs."""

import contextlib
import json
import random
import string

import pytest
from exploring import SECRET

from saltwm.explore.messages import MOST_BYTES, REQUESTS, Answer, Refused, pack, read_message, unpack

STATE = [60.0, 112.0]
GOOD = [
    ("catalogue", {}),
    ("episodes", {"results": "results"}),
    ("episode", {"results": "results", "cell": "two-room-salt-clean-seed1", "task": 0}),
    ("scene", {"model": "two-room-salt"}),
    ("draw", {"model": "two-room-salt", "state": STATE}),
    ("advance", {"model": "two-room-salt", "state": STATE, "goal": STATE, "actions": [[0.1, 0.2]]}),
    ("imagine", {"model": "two-room-salt", "state": STATE, "episode": 0, "step": 0, "blocks": [[0.0] * 10]}),
    ("dataset", {"dataset": "two-room-data"}),
    ("recorded", {"dataset": "two-room-data", "episode": 3}),
]
WORDS = [
    "../../../etc/passwd",
    "/etc/passwd",
    "..",
    "",
    "\x00",
    "a" * 300,
    "{{7*7}}",
    "<script>",
    "two-room-salt\n",
    "__class__",
    "%2e%2e",
]
NUMBERS = [-1, 2**63, 1e308, -1e308, 0.5, True, None, float("nan"), float("inf")]


def mutated(rng):
    """A good message with one thing changed, or noise."""
    ask, options = rng.choice(GOOD)
    message = {"id": rng.randrange(2**31), "ask": ask, "with": json.loads(json.dumps(options))}
    kind = rng.randrange(8)
    if kind == 0:
        return "".join(rng.choices(string.printable, k=rng.randrange(200)))
    if kind == 1:
        text = json.dumps(message)
        place = rng.randrange(len(text))
        return text[:place] + rng.choice(string.printable) + text[place + rng.randrange(3) :]
    if kind == 2:
        message[rng.choice(["id", "ask", "with", "extra"])] = rng.choice([*WORDS, *NUMBERS, [], {}])
    elif message["with"]:
        key = rng.choice(list(message["with"]))
        if kind == 3:
            message["with"][key] = rng.choice(WORDS)
        elif kind == 4:
            message["with"][key] = rng.choice(NUMBERS)
        elif kind == 5:
            del message["with"][key]
        elif kind == 6:
            message["with"][key] = [message["with"][key]] * rng.choice([0, 2, 300])
        else:
            message["with"][rng.choice(WORDS)] = 1
    return json.dumps(message)


def test_two_thousand_mutated_messages_are_read_or_refused():
    rng = random.Random(0)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(2000):
        with contextlib.suppress(Refused):
            outcomes["refused"] += 1
            message = read_message(mutated(rng))
            assert message.ask in REQUESTS or message.request is None
            outcomes["read"] += 1
            outcomes["refused"] -= 1
    assert min(outcomes.values()) > 100  # the mutations are neither all harmless nor all noise


def answer_mutated(running, count, seed):
    rng = random.Random(seed)
    with running.page() as page:
        before = page.ask("draw", model="two-room-salt", state=STATE).blobs
        for _ in range(count):
            text = mutated(rng)
            if '"restart"' in text:
                continue
            page.socket.send(text)
            data = page.socket.recv(timeout=120)
            assert isinstance(data, bytes)  # no worker was lost
            assert SECRET.encode() not in data
            assert b"root:x:" not in data
        assert page.ask("draw", model="two-room-salt", state=STATE).blobs == before


def test_a_running_explorer_answers_mutated_messages_and_stays_up(running):
    answer_mutated(running, 150, seed=1)


@pytest.mark.full
def test_a_running_explorer_answers_two_thousand_mutated_messages(running):
    answer_mutated(running, 2000, seed=2)


@pytest.mark.parametrize("text", ["[" * 30000, '{"id":' * 9000, "1" * 5000, '"' + "\\u0000" * 9000 + '"', b"bytes"])
def test_deep_long_and_binary_messages_are_refused(running, text):
    with running.page() as page:
        page.socket.send(text)
        assert "error" in unpack(page.socket.recv(timeout=60))[1].header


def test_a_message_beyond_its_bound_ends_its_socket_and_no_other(running):
    from websockets.exceptions import ConnectionClosed

    with running.page() as other, running.page() as page:
        page.socket.send("x" * (MOST_BYTES + 1))
        with pytest.raises(ConnectionClosed):
            page.socket.recv(timeout=60)
        assert "models" in other.ask("catalogue").header


def test_an_answer_comes_back_as_it_was_packed():
    answer = Answer({"a": [1, None]}, [b"", b"xyz"])
    assert unpack(pack(7, answer)) == (7, answer)


def test_numbers_that_are_none_are_refused_by_name():
    with pytest.raises(Refused, match="state"):
        read_message('{"id": 1, "ask": "draw", "with": {"model": "m", "state": [NaN]}}')
