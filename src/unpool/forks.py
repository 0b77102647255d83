"""What a fork must not cut in two: another thread that imports or compiles kernels.

A child has the thread that forked, and of all others only the locks that they held. So a fork waits until nobody else
imports kernels, compiles, or is inside LLVM. It does so for LONGEST seconds at most, as whoever compiles may wait for
the thread that forks; the child then gets the locks anew.
"""

import _imp as imp
import os
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from typing import Any

LONGEST = 60.0
"""Seconds."""

_IMPORTED = ("unpool.kernels", "numba", "llvmlite", "numpy")
"""Packages that a first call imports, some of whose modules only when they are first asked for."""

_mine = threading.local()


def guard() -> None:
    """Have all forks of this process wait, from now on."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)


def _before() -> None:
    """Take the locks, in the order of whoever compiles: the last one is that without which no import begins."""
    deadline = time.monotonic() + LONGEST
    while True:
        _mine.held = [lock for lock in _locks() if lock.acquire(timeout=LONGEST)]
        imp.acquire_lock()
        names = [name for name in list(sys.modules) if name.startswith(_IMPORTED) and _is_unfinished(name)]
        if not names or time.monotonic() > deadline:
            return
        _in_parent()
        for name in names:
            with suppress(Exception):  # whoever imports it is told
                import_module(name)


def _in_parent() -> None:
    imp.release_lock()
    for lock in reversed(_mine.held):
        lock.release()


def _in_child() -> None:
    imp.release_lock()
    for lock in reversed(_locks()):
        if lock in _mine.held:
            lock.release()
        else:
            lock._at_fork_reinit()


def _is_unfinished(name: str) -> bool:
    return bool(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False))


def _locks() -> list[Any]:
    """Numba's and LLVM's, of whatever is loaded; those who compile hold the first when they take the second."""
    compiler: Any = getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)
    llvm: Any = getattr(getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None), "_lock", None)
    return [owner._lock for owner in (compiler, llvm) if hasattr(owner, "_lock")]
