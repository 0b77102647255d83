"""What earlier sessions made of models, so that a later session of the same model runs no pass.

    in memory: the latest ENTRIES
    models/ in NUMBA_CACHE_DIR or in the user's cache, which only this user can open
      models-{digest of sources, versions and processor}/     at most MOST_FILES of all versions, of MOST_BYTES

An entry is what passes made of the nodes and small constants of a model, by their digest, or what onnxruntime gets for
a file, by its size and times (`stored_model.py`). Passes see no elements of large weights, so neither an entry nor its
key depends on them. Files are read only if no other user could have written them (`checked_files.py`); one with
anything wrong counts as missing. UNPOOL_MODEL_CACHE=0 switches both off, 1 on.
"""

import os
from collections.abc import Hashable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from unpool import errors
from unpool.kernels.cpu.machine import host
from unpool.kernels.cpu.machine.checked_files import CheckedFiles, cache_folders, source_stamp
from unpool.onnxruntime.package import onnxruntime

if TYPE_CHECKING:
    import onnx

VARIABLE, OFF, ON = "UNPOOL_MODEL_CACHE", "0", "1"
DUMP = "UNPOOL_DUMP"  # the folder for models between passes, which then have to run
ENTRIES = 16  # in memory
MOST_BYTES = 2**22  # of a model without large weights that has an entry, and of an entry
MOST_FILES = 128
_ROOMS = ("graph", "passes", "operators", "onnxruntime", "execute", "kernels", "libraries")
"""The parts of unpool that an entry depends on, if they exist."""
_SETTINGS = ("UNPOOL_LEVEL", "UNPOOL_KERNELS", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")
"""Variables that choose kernels, and so their costs."""


Key: TypeAlias = tuple[str, tuple[Hashable, ...]]
Entry = TypeVar("Entry")
_memory: dict[Key, Any] = {}  # the latest one last; without a lock, for forks


def key_of(bare: "onnx.ModelProto", *settings: Hashable) -> Key | None:
    """The key of a bare model and all that its passes depend on; None where nothing is to be kept."""
    if not is_on() or bare.ByteSize() > MOST_BYTES:
        return None
    content = bare.SerializeToString(deterministic=True)
    return sha256(content).hexdigest(), settings


def is_on() -> bool:
    """True unless UNPOOL_MODEL_CACHE switches it off, or passes have to run for UNPOOL_DUMP.

    Raises:
        UnpoolError: the variable is neither 0 nor 1.
    """
    chosen = os.environ.get(VARIABLE, ON)
    if chosen not in (OFF, ON):
        raise errors.UnpoolError(f"{VARIABLE}: expected {OFF} or {ON}; got {chosen!r}.")
    return chosen == ON and not os.environ.get(DUMP)


def folder() -> Path | None:
    """The folder of the files; None where nothing is written."""
    files = _files(os.environ.get("NUMBA_CACHE_DIR")) if is_on() else None
    return None if files is None else files.folders[0]


def files_in(folder: Path) -> list[Path]:
    """The files of all versions."""
    return list(folder.glob("models-*/*"))


def find(key: Key, kind: type[Entry]) -> Entry | None:
    """The entry of a key, of a class; None where there is none."""
    found = _memory.pop(key, None)
    if found is None:
        files = _files(os.environ.get("NUMBA_CACHE_DIR"))
        found = None if files is None else files.load(key)
    if not isinstance(found, kind):
        return None
    _remember(key, found)
    return found


def keep(key: Key, entry: object) -> None:
    """Keep an entry, for later processes too if a folder can be written."""
    _remember(key, entry)
    files = _files(os.environ.get("NUMBA_CACHE_DIR"))
    if files is not None:
        with suppress(OSError):
            files.folders[0].mkdir(0o700, parents=True, exist_ok=True)
            files.save(key, entry)
            _remove_oldest(files.folders[0])


def _remember(key: Key, entry: object) -> None:
    _memory[key] = entry
    for oldest in list(_memory)[:-ENTRIES]:
        _memory.pop(oldest, None)


@cache
def _files(chosen: str | None) -> CheckedFiles | None:
    """The files in the folder that was chosen, or in the user's; None where nothing tells old sources from new ones."""
    root = os.path.dirname(errors.__file__)
    rooms = (os.path.join(root, room) for room in _ROOMS)
    sources = source_stamp(*filter(os.path.isdir, rooms))  # a clone has no libraries
    if not sources:
        return None
    folder = cache_folders()[0 if chosen else -1] / "models"
    versions = _installation("onnx"), onnxruntime.__version__
    settings = tuple(map(os.environ.get, _SETTINGS))
    return CheckedFiles("models", sources, *versions, host.processor_name(), *settings, folders=[folder])


def _installation(package: str) -> tuple[Hashable, ...]:
    """What tells an installation of a package from another release: its place, and when it was installed."""
    spec = find_spec(package)
    if spec is None or spec.origin is None or not os.path.exists(spec.origin):
        return ()
    status = os.stat(spec.origin)
    return spec.origin, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _remove_oldest(folder: Path) -> None:
    """Remove the entries that were written first, where there are too many."""
    written = [(each.stat().st_mtime_ns, each) for each in files_in(folder)]
    for _, each in sorted(written)[:-MOST_FILES]:
        each.unlink(missing_ok=True)
