"""Arrays that touch memory nobody may touch: a read or write of one byte too many ends the process."""

import ctypes
import faulthandler
import mmap
import os
import signal
import time
import warnings
from collections.abc import Callable

import numpy as np

PAGE = mmap.PAGESIZE
_C = ctypes.CDLL(None)
_NO_ACCESS = 0


def beside_guard(x: np.ndarray, *, at_end: bool, is_input: bool = False) -> np.ndarray:
    """A copy of x whose last element ends at a protected page, or whose first begins after one.

    An input cannot be written either, whatever its flags say.
    """
    size = max(1, -(-x.nbytes // PAGE)) * PAGE
    memory = mmap.mmap(-1, size + 2 * PAGE)
    whole = np.frombuffer(memory, np.uint8)
    start = PAGE + (size - x.nbytes if at_end else 0)
    copy = whole[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    copy[...] = x
    for page in (0, size + PAGE):
        _protect(whole.ctypes.data + page, PAGE, _NO_ACCESS)
    if is_input:
        _protect(whole.ctypes.data + PAGE, size, mmap.PROT_READ)
    return copy


def _protect(address: int, size: int, rights: int) -> None:
    assert _C.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), rights) == 0, "mprotect"


def forked(check: Callable[[], object], patience: float = 60) -> int:
    """The exit code of a child that exits with 0 if `check()` holds; one that hangs is ended."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*use of fork.*", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            faulthandler.disable()
            status = 0 if check() else 1
        finally:
            os._exit(status)
    ended, deadline = 0, time.monotonic() + patience
    while not ended:
        ended, status = os.waitpid(child, os.WNOHANG)
        if not ended and time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.001)
    return os.waitstatus_to_exitcode(status)


def survives(work: Callable[[], object]) -> bool:
    """Whether a child process comes back from `work`; what it stepped on ends with it."""
    return forked(lambda: (work(), True)) == 0
