"""Sources of windows: files as tensors, casts of them, and fingerprints, equal where a later run reads the same."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from unpool.errors import UnpoolError
from unpool.images.axes import Array, AxisMapping, Shape, Slices, normalize_slices
from unpool.images.checks import read_errors

BATCH = "batch"

MAX_HASHED_BYTES = 1 << 30  # size of a file above which only samples are hashed
CHUNK_FOLDER = re.compile(r"c|\d+", re.ASCII)

_BLOCK = 1 << 20
_SAMPLES = 64
_SLAB = 64 << 20
_digest = partial(blake2b, digest_size=16)


@dataclass(frozen=True)
class TiledSource:
    """A file as a tensor; `source[slices]` reads a window.

    Attributes:
        path: of the file.
        stored_shape: in the file.
        dtype: of the elements that are read.
        arrangement: of the file's axes.
        read: a window of the file.
        fingerprint: a hash of its content.
        white_level: the value that means white, where the file states it.
        spatial_header: the header with the position and the units of voxels, where the file has one.
        warning: a note for the caller, such as that the file was read whole.
    """

    path: Path
    stored_shape: Shape
    dtype: np.dtype[Any]
    arrangement: AxisMapping
    read: Callable[[Slices], Array]
    fingerprint: Callable[[], str]
    white_level: float | None = None
    spatial_header: Any = None
    warning: str = ""

    @property
    def shape(self) -> Shape:
        """Of the whole tensor."""
        return self.arrangement.shape(self.stored_shape)

    def __getitem__(self, slices: Slices) -> Array:
        """A window of the tensor; a FileError where the file does not hold what its header states."""
        stored = self.arrangement.slices(normalize_slices(tuple(slices), self.shape))
        text = ", ".join(f"{part.start}:{part.stop}" for part in stored)
        with read_errors(str(self.path), f"the window [{text}]"):
            return self.arrangement.tensor(self.read(stored))


@dataclass(frozen=True)
class OpenOptions:
    """Options of opening a file as a tensor of `rank` axes, as in `unpool.images.open`."""

    rank: int = 4
    layout: str = "NCHW"
    level: int = 0
    channels: int | None = None
    pages: str | None = None


class CastSource:
    """A source in another type; its windows are cast when they are read."""

    def __init__(self, source: Any, dtype: np.dtype[Any]) -> None:
        self.source, self.shape, self.dtype = source, source.shape, dtype
        self.spatial_header = getattr(source, "spatial_header", None)

    def __getitem__(self, slices: Slices) -> Array:
        return np.asarray(self.source[slices]).astype(self.dtype)

    def fingerprint(self) -> str:
        """The fingerprint of the source."""
        return fingerprint_source(self.source)

    def settings(self) -> dict[str, Any]:
        """The settings of the source."""
        return source_settings(self.source)


def cast_source(source: Any, dtype: np.dtype[Any] | None, name: str) -> Any:
    """The source in the type of an input, which has to hold every value; as it is where the type is None."""
    stored = np.dtype(source.dtype)
    if dtype is None or dtype == stored:
        return source
    if dtype.kind in "biufc" and stored.kind in "biufc" and np.can_cast(stored, dtype, "safe"):
        return CastSource(source, dtype)
    raise UnpoolError(f"input {name!r}: expected {dtype}, or a type that fits into it, got {stored}. Convert the file.")


def fingerprint_source(source: Any) -> str:
    """The source's own fingerprint, or one of all its elements."""
    fingerprint: str = source.fingerprint() if hasattr(source, "fingerprint") else fingerprint_array(source)
    return fingerprint


def source_settings(source: Any) -> dict[str, Any]:
    """The source's own settings on which its elements depend, by name; none where it has no method for them."""
    settings: dict[str, Any] = source.settings() if hasattr(source, "settings") else {}
    return settings


def fingerprint_file(path: Path) -> str:
    """A hash of the content; above 1 GiB, of samples and the modification time."""
    with read_errors(str(path), "a file"):
        size = path.stat().st_size
        digest = _digest(str(size).encode())
        with path.open("rb") as file:
            if size <= MAX_HASHED_BYTES:
                while block := file.read(_BLOCK):
                    digest.update(block)
                return digest.hexdigest()
            for place in range(_SAMPLES):
                file.seek((size - _BLOCK) * place // (_SAMPLES - 1))
                digest.update(file.read(_BLOCK))
        digest.update(str(path.stat().st_mtime_ns).encode())
        return digest.hexdigest()


def fingerprint_folder(folder: Path) -> str:
    """A hash of the names, sizes and modification times of all files; links to folders are followed."""
    digest = _digest()
    with read_errors(str(folder), "a folder of files"):
        for path in sorted(_files(folder)):
            status = path.stat()
            line = f"{path.relative_to(folder).as_posix()} {status.st_size} {status.st_mtime_ns}\n"
            digest.update(line.encode(errors="surrogateescape"))
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    """All files in a folder, each folder once; links are followed into folders with names of Zarr's chunks only."""
    seen: set[tuple[int, int]] = set()
    waiting = [(folder, False)]
    while waiting:
        inner, is_linked = waiting.pop()
        status = inner.stat()
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        for path in sorted(inner.iterdir(), reverse=True):
            is_behind_link = is_linked or path.is_symlink()
            if path.is_file():
                yield path
            elif path.is_dir() and (not is_behind_link or CHUNK_FOLDER.fullmatch(path.name)):
                waiting.append((path, is_behind_link))


def fingerprint_array(array: Any) -> str:
    """A hash of shape, type and elements; one slab at a time is read."""
    shape, kind = tuple(array.shape), np.dtype(array.dtype)
    digest = _digest(f"{kind.str} {shape}".encode())
    axis = max(range(len(shape)), key=shape.__getitem__, default=None)
    if axis is None or 0 in shape:
        return _digest(np.asarray(array[()]).tobytes()).hexdigest()
    step = max(1, _SLAB * shape[axis] // (prod(shape) * kind.itemsize))
    for first in range(0, shape[axis], step):
        slab = array[(*(slice(None),) * axis, slice(first, first + step))]
        digest.update(np.ascontiguousarray(slab).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
