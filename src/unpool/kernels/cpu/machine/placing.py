"""Has a worker wake up on another core than its caller's.

Linux looks for an idle core among those that share a cache, as far as it knows. A virtual machine often knows of none,
and there a woken thread mostly lands on the core of whoever wakes it, and waits there while other cores are idle: calls
after a pause take up to twice their time for it (docs/decisions/0001-python-threads.md).
"""

import ctypes
import os
import threading
from collections.abc import Callable
from contextlib import suppress


def _core_call() -> Callable[[], int] | None:
    """What tells on which core its caller runs; None where a program cannot say where its threads are to run."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    return getattr(ctypes.CDLL(None), "sched_getcpu", None)


_core = _core_call()


def keep_off_this_core(thread: threading.Thread) -> set[int]:
    """Have a thread that sleeps wake on another core than the one on which this is called, where it may.

    Returns:
        The cores that `allow` is to give back to it; none where nothing has changed.
    """
    number = thread.native_id
    if _core is None or number is None:
        return set()
    with suppress(OSError):  # the system may refuse such wishes, and nothing depends on them
        usual = os.sched_getaffinity(number)
        others = usual - {_core()}
        if others and others != usual:
            os.sched_setaffinity(number, others)
            return usual
    return set()


def allow(cores: set[int]) -> None:
    """Let this thread run on these cores again, if there are any."""
    if cores:
        with suppress(OSError):
            os.sched_setaffinity(0, cores)
