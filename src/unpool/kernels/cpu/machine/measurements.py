"""Results of measurements on disk, for later processes on this machine."""

import os
from contextlib import suppress
from functools import cache
from importlib import metadata
from typing import Any

from unpool.kernels.cpu.machine import host, libraries
from unpool.kernels.cpu.machine.checked_files import CheckedFiles, source_digest


def find_result(key: str) -> Any:
    """The result of a measurement under a key, by these kernels on such a machine; None where none is stored."""
    files = _files()
    return None if files is None else files.load(_machine_key(key))


def store_result(key: str, result: Any) -> None:
    """Store a result, which can be pickled, if a folder can be written."""
    files = _files()
    if files is not None:
        with suppress(OSError):
            files.save(_machine_key(key), result)


@cache
def _files() -> CheckedFiles | None:
    """The results for these sources of all of unpool: code outside the kernels chooses what is measured."""
    sources = source_digest(package="unpool")
    return CheckedFiles("results", sources) if sources else None


def _machine_key(key: str) -> tuple[object, ...]:
    settings = (os.environ.get("NUMBA_CPU_NAME"), os.environ.get("NUMBA_CPU_FEATURES"))
    return key, _kernels(), host.processor_name(), host.available_cores(), *settings


@cache
def _kernels() -> tuple[str, ...]:
    """Where the machine code of kernels comes from."""
    if libraries.level() is not None:
        return ("library", host.level().name)
    return (metadata.version("numba"), host.level().name) if libraries.can_compile() else ()
