"""Results of measurements on disk, for later processes on this machine."""

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Any

from unpool.kernels.cpu.machine import host
from unpool.kernels.cpu.machine.checked_files import CheckedFiles, cache_folder, source_digest


def find_result(key: str) -> Any:
    """The result of a measurement under a key, by these kernels on such a machine; None where none is stored."""
    files = _files()
    try:
        return None if files is None else files.load(_machine_key(key))
    except Exception:  # as a missing file
        return None


def store_result(key: str, result: Any) -> None:
    """Store a result that can be pickled, if that is possible."""
    files = _files()
    try:
        if files is not None:
            files.save(_machine_key(key), result)
    except OSError:
        return


@cache
def _files() -> CheckedFiles | None:
    sources = source_digest()
    folder = cache_folder(Path(__file__)) if sources else None
    return None if folder is None else CheckedFiles(str(folder), "results", sources)


def _machine_key(key: str) -> str:  # hashed, because the name of a processor may have any length
    settings = (os.environ.get("NUMBA_CPU_NAME"), os.environ.get("NUMBA_CPU_FEATURES"))
    machine = (host.processor_name(), host.level().name, *settings, host.available_cores())
    return hashlib.sha256(repr((machine, key)).encode()).hexdigest()
