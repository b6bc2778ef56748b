"""Ctrl-C and SIGTERM as a question that a loop asks at a good moment."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def stop_signal() -> Iterator[Callable[[], int]]:
    """Yield a function that gives the number of the signal that asked to stop, or 0.

    Only a program's main thread receives signals; elsewhere the answer stays 0.
    """
    received = [0]
    if threading.current_thread() is not threading.main_thread():
        yield lambda: 0
        return

    def remember(number: int, _frame: object) -> None:
        received[0] = number

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: received[0]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
