"""What a command is busy with, said on stderr only where it takes so long that somebody waits."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

AFTER_S = 2.0


@contextmanager
def progress(words: str, after_s: float = AFTER_S) -> Iterator[None]:
    """Say `words` once the block has run for `after_s`, and at its end how long it took."""
    started = time.perf_counter()
    said = threading.Event()

    def say() -> None:
        print(f"{words} ...", end="", file=sys.stderr, flush=True)
        said.set()

    timer = threading.Timer(after_s, say)
    timer.daemon = True
    timer.start()
    ended = ""
    try:
        yield
        ended = f" {time.perf_counter() - started:.1f} s"
    finally:
        timer.cancel()
        timer.join()  # or its words could come after the end
        if said.is_set():
            print(ended, file=sys.stderr, flush=True)
