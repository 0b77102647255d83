"""Notes when kernels are compiled, and logs each of them: that happens once, and then they are in the cache.

The cache tells it: compiling begins where it has nothing, and ends where it gets something. The plain mode of
`numba_seam.py` has Numba's own cache, which tells nothing. Nothing is locked, so that a process may fork at any time.
"""

import logging
import time
from threading import get_ident

_log = logging.getLogger("unpool")
_running: dict[int, tuple[str, float]] = {}
_spent: list[float] = []


def began(kernel: str) -> None:
    """This thread begins to compile a kernel; what it compiles on the way belongs to that."""
    _running.setdefault(get_ident(), (kernel, time.perf_counter()))


def ended(kernel: str) -> None:
    """This thread has compiled a kernel."""
    first, since = _running.get(get_ident(), ("", 0.0))
    if first == kernel:
        del _running[get_ident()]
        _spent.append(time.perf_counter() - since)
        _log.info("kernels: %s is compiled once, %.1f s.", kernel, _spent[-1])


def seconds() -> float:
    """How long kernels have been compiled for in this process, with those that are being compiled; per thread."""
    now = time.perf_counter()
    return sum(_spent) + sum(now - since for _, since in list(_running.values()))
