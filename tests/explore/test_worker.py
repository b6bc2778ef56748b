"""P30: the worker can be killed at any time; questions are answered all the same, and no process stays behind."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from conftest import SHIPPED
from exploring import ROOT, exploring
from processes import is_gone

from saltwm.explore import link
from saltwm.explore.messages import Catalogue, Message, unpack

STATE = [60.0, 112.0]


def kill_workers(running, times):
    with running.page() as page:
        expected = page.ask("draw", model="two-room-salt", state=STATE).blobs
        for _ in range(times):
            (worker,) = running.workers()
            number = page.send(
                "imagine", model="two-room-salt", state=STATE, episode=0, step=0, blocks=[[0.5] * 10] * 3
            )
            os.kill(worker, signal.SIGKILL)
            assert page.receive(number).header["states"]
            assert page.ask("draw", model="two-room-salt", state=STATE).blobs == expected
            assert is_gone(worker)


def test_killed_workers_lose_no_question_and_no_page(running):
    kill_workers(running, 3)


@pytest.mark.full
def test_fifty_killed_workers_lose_no_question_and_no_page(running):
    kill_workers(running, 50)


def test_a_page_may_have_the_worker_ended(running):
    with running.page() as page:
        (worker,) = running.workers()
        assert page.ask("restart").header == {"restarted": True}
        assert page.ask("draw", model="two-room-salt", state=STATE).blobs
        assert is_gone(worker)


def link_to(program, tmp_path, monkeypatch):
    """The server's side, with this program in the worker's place."""
    file = tmp_path / "worker"
    file.write_text(f"#!{sys.executable}\nimport sys, time\n{program}\n")
    file.chmod(0o755)
    monkeypatch.setattr(link, "sys", SimpleNamespace(executable=str(file)))
    return link.Link([])


def asked_once(some):
    """The answer to one question, the worker's number, and how often another took over; nothing stays behind."""

    async def ask():
        packed = await some.ask(Message(1, "catalogue", Catalogue()))
        worker = some.pid
        for _ in range(200):
            if some.restarts:
                break
            await asyncio.sleep(0.05)
        await some.close()
        return unpack(packed)[1].header, worker, some.restarts

    return asyncio.run(ask())


@pytest.mark.timeout(60)
def test_a_question_that_ends_two_workers_is_not_put_to_a_third(tmp_path, monkeypatch):
    some = link_to("sys.stdin.readline()", tmp_path, monkeypatch)
    header, _, restarts = asked_once(some)
    assert header["error"] == "catalogue: the worker ended 2 times while it answered"
    assert restarts == 2


@pytest.mark.timeout(60)
def test_a_worker_that_says_nothing_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(link, "SECONDS_PER_ANSWER", 0.5)
    some = link_to("time.sleep(600)", tmp_path, monkeypatch)
    header, worker, restarts = asked_once(some)
    assert header["error"] == "catalogue: no answer within 0.5 s; the worker was ended"
    assert restarts == 1
    assert is_gone(worker)


ANSWERING = """
import json, struct
for line in sys.stdin.buffer:
    question = json.loads(line)
    time.sleep({seconds})
    text = b'{{"blobs": []}}'
    packed = struct.pack("<II", question["id"], len(text)) + text
    sys.stdout.buffer.write(len(packed).to_bytes(4, "little") + packed)
    sys.stdout.buffer.flush()
"""


def asked_at_once(some, count):
    """The headers of the answers to as many questions at a time, and how often another worker took over."""

    async def ask():
        await some.start()
        message = Message(1, "catalogue", Catalogue())
        found = await asyncio.gather(*(some.ask(message) for _ in range(count)))
        await some.close()
        return [unpack(packed)[1].header for packed in found], some.restarts

    return asyncio.run(ask())


@pytest.mark.timeout(60)
def test_a_worker_that_answers_others_meanwhile_is_not_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(link, "SECONDS_PER_ANSWER", 4.0)
    some = link_to(ANSWERING.format(seconds=0.6), tmp_path, monkeypatch)
    assert asked_at_once(some, 10) == ([{}] * 10, 0)  # the last waits for six seconds


@pytest.mark.timeout(60)
def test_only_the_question_that_a_worker_is_silent_over_fails(tmp_path, monkeypatch):
    """The first question is answered by nobody, whichever worker it is put to; those behind it are."""
    monkeypatch.setattr(link, "SECONDS_PER_ANSWER", 2.0)
    some = link_to(ANSWERING.format(seconds="600 if question['id'] == 1 else 0"), tmp_path, monkeypatch)
    headers, restarts = asked_at_once(some, 4)
    assert headers == [{"error": "catalogue: no answer within 2 s; the worker was ended"}, {}, {}, {}]
    assert restarts == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_stays_behind(number):
    with exploring(SHIPPED[2]) as running:
        (worker,) = running.workers()
        running.process.send_signal(number)
        running.process.wait(timeout=60)
        deadline = time.monotonic() + 30
        while not is_gone(worker) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert is_gone(worker)
        if number != signal.SIGKILL:
            assert running.process.returncode == 0
            assert "ended" in running.process.stdout.read()


def test_help_imports_neither_torch_nor_the_server():
    heavy = "{'torch', 'starlette', 'uvicorn'}"
    code = f"import sys, saltwm.cli as c; c.parse(['explore']); print(sorted({heavy} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert found.stdout.strip() == "[]"
