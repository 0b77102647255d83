"""What asks a process to end waits until the names of files are right."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put Ctrl-C and the wish to end off until the block is over; only the main thread ever gets them."""
    ends = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    signals = [one for one in ends if callable(signal.getsignal(one))]
    if threading.current_thread() is not threading.main_thread() or not signals:
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    earlier = {one: signal.getsignal(one) for one in signals}
    try:
        for one in signals:
            signal.signal(one, lambda number, frame: came.append((number, frame)))
        yield
    finally:
        for one, handler in earlier.items():
            signal.signal(one, handler)
    for number, frame in came:
        handler = earlier[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)
