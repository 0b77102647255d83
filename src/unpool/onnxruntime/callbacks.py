"""What the library calls in a process with Python: functions that import the planner for the first node that kernels do
not plan, and one that finds these kernels.
"""

import atexit
import ctypes
import os
from functools import cache
from typing import Any

from unpool.onnxruntime import library

FAIL = 1  # a code of OrtStatus

_CREATE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
_PLAN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
_COMPUTE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
_SET_KERNELS = ctypes.CFUNCTYPE(None)


class _Planner(ctypes.Structure):
    _fields_ = [("create", _CREATE), ("plan", _PLAN), ("compute", _COMPUTE), ("set_kernels", _SET_KERNELS)]


def _create(node: int, message: int) -> int:
    try:
        from unpool.onnxruntime import planner
    except BaseException as error:  # an installation that lacks parts
        words = f"{type(error).__name__}: {error}".encode()[:1000]
        ctypes.memmove(message, words + b"\0", len(words) + 1)
        return FAIL
    return planner.create(node, message)


def _plan(run: int, key: int, count: int, answer: int) -> int:
    from unpool.onnxruntime import planner

    return planner.plan(run, key, count, answer)


def _compute(run: int) -> int:
    from unpool.onnxruntime import planner

    return planner.compute(run)


def _set_kernels() -> None:
    from unpool.onnxruntime.kernel_table import plan_by_kernels

    plan_by_kernels(True)


_FUNCTIONS = _Planner(  # the library has their addresses
    _CREATE(_create), _PLAN(_plan), _COMPUTE(_compute), _SET_KERNELS(_set_kernels)
)


@cache
def attach() -> None:
    """Let the library call these functions, until the interpreter ends."""
    loaded: Any = ctypes.CDLL(str(library.PATH))
    loaded.unpool_set_planner.argtypes = [ctypes.c_void_p]
    loaded.unpool_set_planner(ctypes.addressof(_FUNCTIONS))
    atexit.register(loaded.unpool_set_planner, None)
    if hasattr(os, "register_at_fork"):  # a forked child has none of the threads that this would wait for
        os.register_at_fork(after_in_child=lambda: atexit.unregister(loaded.unpool_set_planner))
