"""Results of measurements on this machine, kept next to the machine code for later processes.

The same kernels find them on the same kind of processor with the same number of cores; damaged files count as missing,
as in `cache.py`.
"""

import hashlib
import os
from functools import cache
from typing import Any

from llvmlite import binding

from unpool.kernels.cpu.machine.affinity import available_cores
from unpool.kernels.cpu.machine.cache import files_next_to


def find(key: str) -> Any:
    """The result that was stored under a key; None where there is none, or nothing can be stored."""
    files = _files()
    try:
        return None if files is None else files.load(_machine_key(key))
    except Exception:  # as a missing file
        return None


def store(key: str, result: Any) -> None:
    """Store a result that can be pickled, if that is possible."""
    files = _files()
    try:
        if files is not None:
            files.save(_machine_key(key), result)
    except OSError:
        return


@cache
def _files() -> Any:
    return files_next_to(find, "results")


def _machine_key(key: str) -> str:
    """The key on this machine, hashed: the name of a processor may have any length."""
    features = binding.get_host_cpu_features().flatten()
    settings = (os.environ.get("NUMBA_CPU_NAME"), os.environ.get("NUMBA_CPU_FEATURES"))
    machine = (binding.get_host_cpu_name(), features, *settings, available_cores())
    return hashlib.sha256(repr((machine, key)).encode()).hexdigest()
