"""Kernels that plan, for the library: it asks them before it asks Python."""

import ctypes
import os
from typing import Any

from unpool.errors import UnpoolError
from unpool.kernels.cpu.machine import host, libraries
from unpool.memory import LARGE
from unpool.onnxruntime import library


def check_settings() -> None:
    """Refuse wrong values of the variables that choose kernels.

    Raises:
        UnpoolError: UNPOOL_KERNELS or UNPOOL_LEVEL has a value that there is not.
    """
    libraries.can_compile()
    if os.environ.get("UNPOOL_LEVEL"):
        host.level()


def plan_by_kernels(is_on: bool) -> None:
    """Let kernels of the verified library plan nodes; otherwise Python does, as where there is no such library."""
    try:
        table = libraries.kernel_table() if is_on else None
        can_compile = table is not None and libraries.can_compile()
    except UnpoolError:  # which the planner raises again
        table, can_compile = None, False
    loaded: Any = ctypes.CDLL(str(library.PATH))
    loaded.unpool_set_kernels.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64]
    loaded.unpool_set_kernels(table, int(can_compile), host.available_cores(), LARGE)
