"""What was measured once on this machine, kept beside the machine code for later processes.

It is found again by the same kernels on the same kind of processor with the same number of cores; what a crash or a
failing disk left is not found, as in `cache.py`.
"""

import hashlib
import os
from functools import cache
from typing import Any

from llvmlite import binding

from unpool.kernels.cpu.machine.cache import files_beside
from unpool.kernels.cpu.machine.cores import available


def find(key: str) -> Any:
    """What was kept under a key; None where there is nothing, or nothing can be kept."""
    files = _files()
    try:
        return None if files is None else files.load(_whole(key))
    except Exception:  # as a file that is not there
        return None


def keep(key: str, result: Any) -> None:
    """Keep what can be pickled, if that is possible."""
    files = _files()
    try:
        if files is not None:
            files.save(_whole(key), result)
    except OSError:
        return


@cache
def _files() -> Any:
    return files_beside(find, "results")


def _whole(key: str) -> str:
    """The key on this machine: of one length, however long the name of a processor is."""
    features = binding.get_host_cpu_features().flatten()
    asked = (os.environ.get("NUMBA_CPU_NAME"), os.environ.get("NUMBA_CPU_FEATURES"))
    machine = (binding.get_host_cpu_name(), features, *asked, available())
    return hashlib.sha256(repr((machine, key)).encode()).hexdigest()
