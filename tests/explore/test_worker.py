"""P30: the worker can be killed at any time; questions are answered all the same, and no process stays behind."""

import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import SHIPPED
from exploring import ROOT, exploring
from processes import is_gone

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
