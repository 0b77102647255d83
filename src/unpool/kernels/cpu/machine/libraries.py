"""Machine code that unpool was shipped with: a library of kernels for each level of processors.

`python -m unpool.build` makes the libraries (`unpool/build/`). A kernel is a function in C's calling convention for
Python functions, METH_FASTCALL, whose name is a digest of the kernel's name and the types of its arguments. A kernel
that the library lacks is compiled.

UNPOOL_KERNELS is `auto`, `shipped`, which refuses to compile, or `compiled`, which uses no library.
"""

import ctypes
import hashlib
import json
import os
import platform
import sys
from contextlib import suppress
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unpool.errors import UnpoolError
from unpool.extras import require
from unpool.kernels.cpu.machine.checked_files import CheckedFiles, source_digest, source_stamp

FOLDER = Path(__file__).parents[3] / "libraries"
"""The folder of the libraries and their manifest."""

MANIFEST = "manifest.json"
_SOURCES = Path(__file__).parents[1]  # of the kernels
_X86, _ARM = ("x86-64-v2", "x86-64-v3", "x86-64-v4"), ("aarch64",)
MACHINE_LEVELS = {"x86_64": _X86, "amd64": _X86, "aarch64": _ARM, "arm64": _ARM}
"""By machine, the levels of its processors; each of them has the instructions of those before."""

PYTHON_TABLE = "unpool_python"
"""The array of a library that the loader writes PYTHON_SIZES and the addresses of PYTHON_FUNCTIONS to."""

PYTHON_SIZES = {"object": object.__basicsize__, "tuple": tuple.__basicsize__}
"""Bytes before the fields of an object and before the items of a tuple, which differ between releases of Python."""

PYTHON_FUNCTIONS = (
    *("PyLong_AsLongLong", "PyLong_FromLongLong", "PyFloat_AsDouble"),
    *("PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_NoMemory"),
)
PYTHON_ENTRIES = (*PYTHON_SIZES, *PYTHON_FUNCTIONS)

CPU_LEVEL = "unpool_cpu_level"
"""The function of an x86 library, for all processors, that returns n for one of level x86-64-vn, 1 or more."""

KERNEL_TABLE = "unpool_kernels"
"""The array of a library with the ABI of plans, the number of rows, and rows of a kernel's number and its C entry."""

C_ENTRY = "_c"
"""After the symbol of a kernel: its C entry, see `entry_point.py`."""

SOURCES = "unpool_sources"
"""The text of a library that is the digest of the sources that it was built from."""

_METH_FASTCALL = 0x80
_definitions: list[Any] = []  # Python functions point to them


class _MethodDefinition(ctypes.Structure):
    """PyMethodDef of CPython."""

    _fields_ = [
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    ]  # fmt: skip


def symbol(name: str, args: tuple[Any, ...]) -> str:
    """The symbol of a kernel for arguments of these types."""
    return f"unpool_{hashlib.sha256(f'{name}({type_names(args)})'.encode()).hexdigest()[:24]}"


def c_symbol(name: str, args: tuple[Any, ...]) -> str:
    """The symbol of the C entry of a kernel for arguments of these types (`entry_point.py`)."""
    return f"{symbol(name, args)}{C_ENTRY}"


def type_names(args: tuple[Any, ...]) -> str:
    """The types of arguments as text, with all that machine code depends on.

    >>> type_names((3, np.zeros((2, 2), np.float32)))
    'int, float32[2C]'
    """
    return ", ".join(map(_type_name, args))


def _type_name(value: Any) -> str:
    if isinstance(value, np.ndarray):
        flags = value.flags
        layout = f"{'C' if flags.c_contiguous else 'A'}{'' if flags.writeable else 'R'}{'' if flags.aligned else 'U'}"
        return f"{_dtype_name(value.dtype)}[{value.ndim}{layout}]"
    return f"{type(value).__name__}({type_names(value)})" if isinstance(value, tuple) else type(value).__name__


_dtype_name = lru_cache(maxsize=256)(str)  # NumPy takes a tenth of a millisecond to format the type of a record


class Library(NamedTuple):
    """The library of this process."""

    level: str | None  # None where kernels are compiled
    functions: Any  # by symbol
    problem: str  # why there is none
    is_broken: bool = False  # there should be one


def find(name: str, args: tuple[Any, ...]) -> Any:
    """The kernel for arguments of these types as a Python function; None where it has to be compiled."""
    function = find_shipped(name, args)
    if function is None:
        _check_compiler(name, args)
    return function


def find_shipped(name: str, args: tuple[Any, ...]) -> Any:
    """The kernel for arguments of these types as a Python function; None if the library lacks it."""
    return _function(symbol(name, args))


@cache  # by symbol, as a definition is never freed
def _function(name: str) -> Any:
    """The function of the library under a symbol, for Python; None if it has none."""
    address = _address(name)
    if address is None:
        return None
    definition = _MethodDefinition(name.encode(), address, _METH_FASTCALL, None)
    _definitions.append(definition)
    new_function = ctypes.pythonapi.PyCFunction_NewEx
    new_function.restype, new_function.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
    return new_function(ctypes.addressof(definition), None, None)


def _address(name: str) -> int | None:
    """The address of a symbol of the library; None if it has none."""
    function = getattr(load().functions, name, None)
    return None if function is None else ctypes.cast(function, ctypes.c_void_p).value


def address(name: str) -> int | None:
    """The address of a function that takes and returns C's int64; None where it has to be compiled."""
    return _checked_address(symbol(name, ()), name, ())


def c_entry(name: str, args: tuple[Any, ...]) -> int | None:
    """The address of the C entry of a kernel for arguments of these types; None where it has to be compiled."""
    return _checked_address(c_symbol(name, args), name, args)


def is_shipped(name: str, args: tuple[Any, ...]) -> bool:
    """True if the library has the C entry of a kernel for arguments of these types."""
    return _address(c_symbol(name, args)) is not None


def _checked_address(wanted: str, name: str, args: tuple[Any, ...]) -> int | None:
    result = _address(wanted)
    if result is None:
        _check_compiler(name, args)
    return result


def kernel_table() -> int | None:
    """The address of the library's KERNEL_TABLE; None where kernels are compiled."""
    return _address(KERNEL_TABLE)


def level() -> str | None:
    """The level of the library in use, such as x86-64-v3; None where kernels are compiled."""
    return load().level


def library_file() -> str | None:
    """The file name of the library in use; None where kernels are compiled."""
    chosen = level()
    return None if chosen is None else str(manifest()["libraries"][chosen]["file"])


@cache
def can_compile() -> bool:
    """True if kernels that are not shipped can be compiled."""
    return _choice() != "shipped" and find_spec("numba") is not None


def _check_compiler(name: str, args: tuple[Any, ...]) -> None:
    """The error for a kernel that is not shipped, if compiling is forbidden or impossible."""
    library = load()
    if library.functions is None:
        require_compiler()
        return
    problem = f"the library for {library.level} lacks {name}({type_names(args)})"
    if _choice() == "shipped":
        raise UnpoolError(f"kernels: {problem}, and UNPOOL_KERNELS=shipped forbids to compile it. Set it to auto.")
    require(f"kernels: {problem}, so it is compiled", "jit", "numba")
    _logger().info("kernels: %s, so it is compiled.", problem)


def _logger() -> Any:
    import logging  # most processes log nothing

    return logging.getLogger("unpool")


def require_compiler() -> None:
    """An error if there is no library, and kernels may not, or cannot, be compiled."""
    problem = load().problem
    if _choice() == "shipped":
        remedy = "Install unpool again" if load().is_broken else "Set it to auto"
        raise UnpoolError(f"kernels: {problem}, and UNPOOL_KERNELS=shipped forbids to compile them. {remedy}.")
    require(f"kernels: {problem}, so they are compiled", "jit", "numba")


def _choice() -> str:
    choice = os.environ.get("UNPOOL_KERNELS", "auto")
    if choice not in ("auto", "shipped", "compiled"):
        raise UnpoolError(f"UNPOOL_KERNELS: expected auto, shipped or compiled; got {choice!r}.")
    return choice


@cache
def load() -> Library:
    """Load the library for this processor."""
    if _choice() == "compiled":
        return Library(None, None, "UNPOOL_KERNELS is compiled")
    if _choice() == "auto" and {"NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"} & os.environ.keys() and can_compile():
        return Library(None, None, "NUMBA_CPU_NAME or NUMBA_CPU_FEATURES is set")
    if not manifest():
        return Library(None, None, "this installation has no libraries")
    if sys.maxsize < 2**32:
        return Library(None, None, "no library is for a Python of 32 bits")
    levels = shipped_levels()
    if not levels:
        return Library(None, None, f"no library is for {platform.machine()}")
    try:
        library = _open(levels[0])
        allowed = _allowed(levels, library)
        if not allowed:
            return Library(None, None, "no library is for this processor")
        chosen = os.environ.get("UNPOOL_LEVEL") or allowed[-1]
        if chosen not in allowed:
            return Library(None, None, f"UNPOOL_LEVEL is {chosen}, and this processor runs the libraries for {allowed}")
        library = library if chosen == levels[0] else _open(chosen)
    except _BrokenLibraryError as error:
        if _choice() == "auto":
            _logger().warning("kernels: %s, so kernels are compiled. Install unpool again.", error)
        return Library(None, None, str(error), is_broken=True)
    return Library(chosen, library, "")


def shipped_levels() -> list[str]:
    """The levels of the libraries for processors like this one, the lowest first."""
    libraries = manifest().get("libraries", {})
    return [each for each in MACHINE_LEVELS.get(platform.machine().lower(), ()) if each in libraries]


def usable_levels() -> list[str]:
    """The shipped levels whose instructions this processor has; none where kernels are compiled."""
    library = load().functions
    return [] if library is None else _allowed(shipped_levels(), library)


def _allowed(levels: list[str], library: Any) -> list[str]:
    """The levels whose instructions this processor has, as a library tells."""
    is_x86 = levels[0].startswith("x86")
    return [each for each in levels if each <= f"x86-64-v{library[CPU_LEVEL]()}"] if is_x86 else levels


@cache
def manifest() -> dict[str, Any]:
    """The `sources` of the libraries, a digest, their `platform`, a tag of wheels, `only`, and `libraries`.

    `libraries` has for each level the `file`, its `sha256`, and the number of its `kernels`: those of the catalogue
    whose names contain `only`. The manifest is empty where there are no libraries.
    """
    try:
        content: dict[str, Any] = json.loads((FOLDER / MANIFEST).read_text())
    except (OSError, ValueError):
        return {}
    return content


class _BrokenLibraryError(Exception):
    """A library that cannot be used."""


def _open(name: str) -> Any:
    """The library for a level, ready to be called; a _BrokenLibraryError where it is not what it should be."""
    entry = manifest()["libraries"][name]
    path = FOLDER / entry["file"]
    try:
        _verify(path, entry["sha256"])
        library = ctypes.CDLL(str(path))
    except OSError as cause:
        raise _BrokenLibraryError(f"{path} cannot be loaded: {cause.strerror or cause}") from cause
    addresses = [ctypes.cast(getattr(ctypes.pythonapi, each), ctypes.c_void_p).value for each in PYTHON_FUNCTIONS]
    table = ctypes.c_void_p * len(PYTHON_ENTRIES)
    words = table(*PYTHON_SIZES.values(), *addresses)
    ctypes.memmove(table.in_dll(library, PYTHON_TABLE), words, ctypes.sizeof(words))
    return library


def _verify(path: Path, digest: str) -> None:
    """Check that a file is the library in the manifest, built from these sources; else _BrokenLibraryError.

    A note on disk spares reading both again while they stay the same: two files differ in inode or time of change.
    """
    status = path.stat()
    sources = manifest()["sources"], source_stamp(str(_SOURCES))
    stamp = (digest, *sources, *status[:3], status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    notes = CheckedFiles("libraries")
    if notes.load(str(path)) == stamp:
        return
    if source_digest(".py") not in ("", manifest()["sources"]):
        raise _BrokenLibraryError(f"{path} was built from other sources")
    if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
        raise _BrokenLibraryError(f"{path} is damaged")
    with suppress(OSError):
        notes.save(str(path), stamp)
