"""What the explorer costs on top of the bare computation.

A page asks through a socket, a server and a pipe; the worker says with each answer how long the bare computation took.
Only the ratio of the two is judged: they are of the same process and the same moment.
"""

import asyncio
import contextlib
import itertools
import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from saltwm.bench.timing import Figure
from saltwm.explore.folders import Place, find_places
from saltwm.explore.messages import Answer, unpack
from saltwm.jobs.explore import Explore, bound, configured, folders_of
from saltwm.report.paper_figures import FOUR

MOST_OVERHEAD = 1.5

_Ask = Callable[[str, dict[str, Any]], Answer]


def explore_figures(environments: tuple[str, ...] = FOUR, rounds: int = 15) -> list[Figure]:
    """Slider and decision in each world: as a page has them, in seconds, and as ratios to the bare computation."""
    with _asking(find_places(folders_of(environments))) as ask:
        return [figure for name in environments for figure in _of_one_world(name, ask, rounds)]


def _of_one_world(environment: str, ask: _Ask, rounds: int) -> Iterator[Figure]:
    model = f"{environment}-salt"
    scene = ask("scene", {"model": model}).header
    block = scene["frameskip"] * scene["action_dim"]
    planner = scene["planners"][0]

    def moved(number: int) -> dict[str, Any]:
        """The first block in another place each time: nothing after it is remembered."""
        return {"blocks": [[0.01 * number] * block, *([[0.1] * block] * 4)]}

    slider = {"model": model, "state": scene["state"], "episode": 0, "step": 0}
    decision = {"model": model, "state": scene["state"], "goal": scene["goal"], "planner": planner}
    decision |= {"horizon_blocks": 5, "seed": 0, "number": 0, "task": 0, "bounded": True}
    decision |= {
        "look_every": None,
        "executed_blocks": 0,
        "rest": [],
        "history_frames": 1,
        "past": [],
        "past_actions": [],
    }
    title = f"{environment}, a slider of Imagine"
    yield from _measured(title, lambda number: ask("imagine", slider | moved(number)), rounds, 0.1)
    yield from _measured(f"{environment}, a decision of {planner}", lambda _: ask("decide", decision), rounds, 0.15)


def _measured(what: str, ask: Callable[[int], Answer], rounds: int, wanted: float) -> list[Figure]:
    """Fastest answer in seconds and the median overhead; the first round, which fills caches, is not counted."""
    waited, ratios = [], []
    for number in range(rounds + 1):
        started = time.perf_counter()
        answer = ask(number)
        seconds = time.perf_counter() - started
        assert "error" not in answer.header, answer.header["error"]
        if number:
            waited.append(seconds)
            ratios.append(seconds / answer.header["seconds"])
    return [
        Figure(f"{what}, answered", min(waited), "s", note=f"{wanted:g} s is wanted on an idle core"),
        Figure(f"{what} / bare", statistics.median(ratios), "x", at_most=MOST_OVERHEAD),
    ]


@contextlib.contextmanager
def _asking(places: list[Place]) -> Iterator[_Ask]:
    """A server in a thread of this process with its worker beside it, asked through its socket as a page asks."""
    import uvicorn
    from websockets.sync.client import connect

    from saltwm.explore.server import Explorer

    with bound(Explore()) as listening:
        explorer = Explorer(places, port=listening.getsockname()[1])
        server = uvicorn.Server(configured(explorer))
        serving = threading.Thread(target=partial(asyncio.run, server.serve(sockets=[listening])))
        serving.start()
        numbers = itertools.count(1)
        try:
            address = f"ws://127.0.0.1:{explorer.port}/{explorer.token}/live"
            origin: Any = f"http://127.0.0.1:{explorer.port}"
            with connect(address, origin=origin, max_size=None, proxy=None, open_timeout=60) as socket:

                def ask(name: str, options: dict[str, Any]) -> Answer:
                    number = next(numbers)
                    socket.send(json.dumps({"id": number, "ask": name, "with": options}))
                    while True:
                        data = socket.recv()
                        if isinstance(data, bytes) and unpack(data)[0] == number:
                            return unpack(data)[1]

                yield ask
        finally:
            server.should_exit = True
            serving.join()
