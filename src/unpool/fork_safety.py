"""Forks that wait for other threads which import or compile kernels.

A child process has only the thread that forked, and the locks that other threads held. So a fork waits until no other
thread imports kernels, compiles, or is inside LLVM. It waits for at most MAX_SECONDS, as the compiling thread may wait
for the thread that forks; then the child gets new locks.
"""

import _imp as imp
import os
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from typing import Any

MAX_SECONDS = 60.0

_PACKAGES = ("unpool.kernels", "numba", "llvmlite", "numpy")
"""Packages that a first call imports, some of their modules only on first use."""

_state = threading.local()


def install_hooks() -> None:
    """Make all later forks of this process wait."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)


def _before() -> None:
    """Take the locks in the order of a compiling thread, and last the lock of all imports."""
    deadline = time.monotonic() + MAX_SECONDS
    while True:
        _state.held = [lock for lock in _locks() if lock.acquire(timeout=MAX_SECONDS)]
        imp.acquire_lock()
        names = [name for name in list(sys.modules) if name.startswith(_PACKAGES) and _is_loading(name)]
        if not names or time.monotonic() > deadline:
            return
        _after_in_parent()
        for name in names:
            with suppress(Exception):  # the thread that imports it gets the error
                import_module(name)


def _after_in_parent() -> None:
    imp.release_lock()
    for lock in reversed(_state.held):
        lock.release()


def _after_in_child() -> None:
    imp.release_lock()
    for lock in reversed(_locks()):
        if lock in _state.held:
            lock.release()
        else:
            lock._at_fork_reinit()


def _is_loading(name: str) -> bool:
    return bool(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False))


def _locks() -> list[Any]:
    """The locks of Numba and LLVM, if loaded; a compiling thread holds the first when it takes the second."""
    compiler: Any = getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)
    llvm: Any = getattr(getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None), "_lock", None)
    return [owner._lock for owner in (compiler, llvm) if hasattr(owner, "_lock")]
