"""Ctrl-C and SIGTERM as a question that a loop asks at a good moment."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def stop_signal() -> Iterator[Callable[[], int]]:
    """Yield a function that gives the number of the first signal that asked to stop, or 0.

    A second Ctrl-C is obeyed at once. Only a program's main thread receives signals; elsewhere the answer stays 0.
    """
    first = 0
    if threading.current_thread() is not threading.main_thread():
        yield lambda: 0
        return

    def remember(number: int, _frame: object) -> None:
        nonlocal first
        if first and number == signal.SIGINT:
            raise KeyboardInterrupt
        first = first or number

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: first
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
