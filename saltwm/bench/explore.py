"""What the explorer costs on top of the bare computation: `saltwm bench explore`.

A page asks through a socket, a server and a pipe; the same function is called here in this process. Both take turns,
so that a busy machine slows them alike, and only their ratio is judged.
"""

import asyncio
import contextlib
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from saltwm.bench.timing import Figure, take_turns
from saltwm.explore.desk import Desk
from saltwm.explore.folders import Place, find_places
from saltwm.explore.messages import Answer, unpack
from saltwm.explore.worker import answer
from saltwm.jobs.explore import Explore, bound, configured, folders_of

MOST_OVERHEAD = 1.5


def explore_figures(environment: str = "two-room", rounds: int = 15) -> list[Figure]:
    """Slider and decision: as a page has them, in seconds, and as ratios to the bare computation."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        places = find_places(folders_of((environment,)))
        desk, model = Desk(places), f"{environment}-salt"
        with asking(places) as ask:
            return _figures(desk, ask, model, rounds)
    finally:
        torch.set_num_threads(threads)


def _figures(desk: Desk, ask: Callable[..., Answer], model: str, rounds: int) -> list[Figure]:
    scene = _checked(partial(answer, desk, "scene", {"model": model})).header
    block = scene["frameskip"] * scene["action_dim"]
    planner = scene["planners"][0]
    slider = {"model": model, "state": scene["state"], "blocks": [[0.1] * block] * 5}
    decision = {"model": model, "state": scene["state"], "goal": scene["goal"], "planner": planner}
    decision |= {"horizon_blocks": 5, "seed": 0, "number": 0, "task": 0, "bounded": True}
    decision |= {"look_every": None, "executed_blocks": 0, "rest": []}
    jobs: dict[str, Callable[[], object]] = {}
    for name, options in (("imagine", slider), ("decide", decision)):
        jobs[f"{name}, bare"] = partial(_checked, partial(answer, desk, name, options))
        jobs[f"{name}, page"] = partial(_checked, partial(ask, name, options))
    timings = take_turns(jobs, rounds)
    return [
        Figure(
            "a slider of Imagine, answered",
            timings.fastest("imagine, page"),
            "s",
            note="0.1 s is wanted on an idle core",
        ),
        Figure("the same, bare", timings.fastest("imagine, bare"), "s"),
        Figure("slider / bare", timings.ratio("imagine, page", "imagine, bare"), "x", at_most=MOST_OVERHEAD),
        Figure(
            f"a decision of {planner}", timings.fastest("decide, page"), "s", note="0.15 s is wanted on an idle core"
        ),
        Figure("the same, bare", timings.fastest("decide, bare"), "s"),
        Figure("decision / bare", timings.ratio("decide, page", "decide, bare"), "x", at_most=MOST_OVERHEAD),
    ]


def _checked(work: Callable[[], Answer]) -> Answer:
    found = work()
    assert "error" not in found.header, found.header["error"]
    return found


@contextlib.contextmanager
def asking(places: list[Place]) -> Iterator[Callable[[str, dict[str, Any]], Answer]]:
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
