"""The worker: one question at a time from standard input, its answer to standard output.

It remembers nothing but what it can make again, and ends when its input does: no server, no worker.
"""

import contextlib
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, BinaryIO

from saltwm.explore import acting, browsing, catalogue, imagining, recorded
from saltwm.explore.desk import Desk
from saltwm.explore.folders import Place
from saltwm.explore.messages import REQUESTS, Answer, pack
from saltwm.ground.errors import SaltError
from saltwm.ground.strict_json import from_plain

ANSWERS: dict[str, Callable[[Desk, Any], Answer]] = {
    "catalogue": catalogue.catalogue,
    "episodes": browsing.episodes,
    "episode": browsing.episode,
    "scene": acting.scene,
    "draw": acting.draw,
    "decide": acting.decide,
    "advance": acting.advance,
    "command": acting.command,
    "imagine": imagining.imagine,
    "decompose": imagining.decompose,
    "gallery": imagining.gallery,
    "weights": imagining.weights,
    "decoder": imagining.decoder,
    "dataset": recorded.dataset,
    "recorded": recorded.recorded,
}
QUIET_SECONDS = 1.0
"""The worker fits a decoder only after this long without a question, so that sliders stay quick."""


def answer(desk: Desk, ask: str, request: Any) -> Answer:
    """The answer to a question; whatever goes wrong with it is an answer too."""
    try:
        return ANSWERS[ask](desk, from_plain(REQUESTS[ask], request, ask))
    except SaltError as error:
        return Answer({"error": str(error)})
    except Exception as error:  # a damaged file must not end the worker that everything else is asked of
        return Answer({"error": f"{ask}: {type(error).__name__}: {error}"[:500]})


def main() -> None:
    """Serve until the input ends."""
    channel = _take_output()
    desk = Desk([from_plain(Place, entry, "place") for entry in json.loads(sys.argv[1])])
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(inbox,), daemon=True).start()
    desk.expect_first()
    asked = -QUIET_SECONDS  # idle from the start: a simulator starts while the browser does
    while True:
        try:
            idle = time.monotonic() - asked > QUIET_SECONDS and desk.idle()
            line = inbox.get(timeout=0.0 if idle else 0.25)
        except queue.Empty:
            continue
        message = json.loads(line)
        started = time.perf_counter()
        found = answer(desk, message["ask"], message["with"])
        found.header["seconds"] = time.perf_counter() - started
        packed = pack(message["id"], found)
        channel.write(len(packed).to_bytes(4, "little") + packed)
        channel.flush()
        if message["ask"] != "decoder":
            asked = time.monotonic()


def _take_output() -> BinaryIO:
    """Standard output for answers alone; whatever libraries print goes to standard error."""
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with contextlib.suppress(ImportError):
        import torch

        torch.set_num_threads(1)
    return channel


def _listen(inbox: "queue.SimpleQueue[bytes]") -> None:
    """Lines of the input; its end ends the process at once, whatever it is doing."""
    for line in sys.stdin.buffer:
        inbox.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
