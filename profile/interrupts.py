"""Ctrl-C and SIGTERM during a run: both end it cleanly, and neither is ever swallowed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Turn SIGINT and SIGTERM into KeyboardInterrupt, and remember them; yields whether one came.

    Python drops a KeyboardInterrupt that is raised inside a finaliser; asking between stages makes up for it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    seen: list[int] = []

    def handle(number: int, _: object) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
