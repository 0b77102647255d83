"""Machine code that unpool was shipped with: a library of kernels for each level of processors.

`python -m unpool.build` makes the libraries (`unpool/build/`). A kernel is a function in C's calling convention for
Python functions, METH_FASTCALL, whose name is a digest of the kernel's name and the types of its arguments. A kernel
that the library lacks is compiled.

UNPOOL_KERNELS is `auto`, `shipped`, which refuses to compile, or `compiled`, which uses no library.
"""

import ctypes
import hashlib
import json
import logging
import os
import platform
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from unpool.errors import UnpoolError

_log = logging.getLogger("unpool")

FOLDER = Path(__file__).parents[3] / "libraries"
"""The folder of the libraries and their manifest."""

MANIFEST = "manifest.json"
FLOOR = {"x86_64": "x86-64-v2", "amd64": "x86-64-v2", "aarch64": "aarch64", "arm64": "aarch64"}
"""By machine, the level of all its processors; its library tells the level of this one."""

PYTHON_TABLE = "unpool_python"
"""The array of a library with the addresses of PYTHON_FUNCTIONS, which the loader writes there."""

PYTHON_FUNCTIONS = (
    *("PyLong_AsLongLong", "PyLong_FromLongLong", "PyFloat_AsDouble"),
    *("PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_NoMemory"),
)

CPU_LEVEL = "unpool_cpu_level"
"""The function of an x86 library that returns n for a processor of level x86-64-vn, 1 or more."""

OBJECT_BYTES = 16
"""Bytes of the header of Python objects that libraries expect; free-threaded Python has others."""

_METH_FASTCALL = 0x80
_definitions: list[Any] = []  # Python functions point to them


class _MethodDefinition(ctypes.Structure):
    """PyMethodDef of CPython."""

    _fields_ = [
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    ]  # fmt: skip


def symbol(name: str, args: tuple[Any, ...]) -> str:
    """The name in a library of a kernel for arguments of these types."""
    return f"unpool_{hashlib.sha256(f'{name}({type_names(args)})'.encode()).hexdigest()[:24]}"


def type_names(args: tuple[Any, ...]) -> str:
    """The types of arguments, as far as machine code depends on them.

    >>> type_names((3, np.zeros((2, 2), np.float32)))
    'int, float32[2C]'
    """
    return ", ".join(map(_type_name, args))


def _type_name(value: Any) -> str:
    if isinstance(value, np.ndarray):
        flags = value.flags
        layout = f"{'C' if flags.c_contiguous else 'A'}{'' if flags.writeable else 'R'}{'' if flags.aligned else 'U'}"
        return f"{value.dtype}[{value.ndim}{layout}]"
    return f"{type(value).__name__}({type_names(value)})" if isinstance(value, tuple) else type(value).__name__


def find(name: str, args: tuple[Any, ...]) -> Any:
    """The kernel for arguments of these types as a Python function; None where it has to be compiled."""
    library = load()
    if library is None:
        return None
    wanted = symbol(name, args)
    function = getattr(library, wanted, None)
    if function is None:
        _refuse_to_compile(f"the library for {level()} lacks the kernel {name}({type_names(args)})")
        _log.info("kernels: %s is not in the library for %s, so it is compiled.", name, level())
        return None
    definition = _MethodDefinition(wanted.encode(), ctypes.cast(function, ctypes.c_void_p), _METH_FASTCALL, None)
    _definitions.append(definition)
    new_function = ctypes.pythonapi.PyCFunction_NewEx
    new_function.restype, new_function.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
    return new_function(ctypes.addressof(definition), None, None)


def address(name: str) -> int | None:
    """The address of a function that takes and returns C's int64; None where it has to be compiled."""
    library = load()
    function = None if library is None else getattr(library, symbol(name, ()), None)
    return None if function is None else ctypes.cast(function, ctypes.c_void_p).value


def level() -> str | None:
    """The level of the library in use, such as x86-64-v3; None where kernels are compiled."""
    return None if load() is None else _open()[0]


def load() -> Any:
    """The library for this processor; None where kernels are compiled."""
    return _open()[1]


@cache
def _open() -> tuple[str, Any]:
    """The level and the library of this process."""
    choice = os.environ.get("UNPOOL_KERNELS", "auto")
    if choice not in ("auto", "shipped", "compiled"):
        raise UnpoolError(f"UNPOOL_KERNELS: expected auto, shipped or compiled; got {choice!r}.")
    if choice == "compiled" or (choice == "auto" and {"NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"} & os.environ.keys()):
        return "", None
    floor = FLOOR.get(platform.machine().lower(), "")
    files, problem = manifest(), ""
    if not files:
        problem = "this installation has no libraries"
    elif object.__basicsize__ != OBJECT_BYTES or sys.maxsize < 2**32:
        problem = "no library is for this kind of Python"
    elif floor not in files:
        problem = f"no library is for {platform.machine()}"
    else:
        chosen, library = floor, _load(files, floor)
        if library is not None and floor == "x86-64-v2":
            levels = [f"x86-64-v{number}" for number in range(library[CPU_LEVEL](), 1, -1)]
            chosen = next((each for each in levels if each in files), "")
            library = library if chosen == floor else _load(files, chosen) if chosen else None
        if library is not None:
            return chosen, library
        problem = "no library is for this processor" if not chosen else "a library is damaged"
    _refuse_to_compile(problem)
    return "", None


def _refuse_to_compile(problem: str) -> None:
    if os.environ.get("UNPOOL_KERNELS") == "shipped":
        raise UnpoolError(f"kernels: {problem}, and UNPOOL_KERNELS=shipped forbids to compile. Set it to auto.")


@cache
def manifest() -> dict[str, dict[str, str]]:
    """By level, the `file` and its `sha256`; empty where there are no libraries."""
    try:
        content: dict[str, dict[str, str]] = json.loads((FOLDER / MANIFEST).read_text())["libraries"]
    except OSError:
        return {}
    return content


def _load(files: dict[str, dict[str, str]], name: str) -> Any:
    """A library, ready to be called; None, and a warning, where it is not the one of the manifest."""
    path = FOLDER / files[name]["file"]
    if not _is_verified(path, files[name]["sha256"]):
        _log.warning("kernels: %s is damaged, so kernels are compiled. Install unpool again.", path)
        return None
    library = ctypes.CDLL(str(path))
    table = (ctypes.c_void_p * len(PYTHON_FUNCTIONS)).in_dll(library, PYTHON_TABLE)
    for number, function in enumerate(PYTHON_FUNCTIONS):
        table[number] = ctypes.cast(getattr(ctypes.pythonapi, function), ctypes.c_void_p).value
    return library


def _is_verified(path: Path, digest: str) -> bool:
    """True if a file has this digest, or had it when it was loaded before and has not changed since."""
    try:
        status = path.stat()
        stamp = f"{digest} {status.st_size} {status.st_mtime_ns}"
        note = path.parent / "__pycache__" / f"{path.name}.verified"
        with suppress(OSError):
            if note.read_text() == stamp:
                return True
        if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            return False
    except OSError:
        return False
    with suppress(OSError):
        note.parent.mkdir(exist_ok=True)
        note.write_text(stamp)
    return True
