"""Fingerprints of files, folders and arrays: equal where a later run reads the same."""

import re
from collections.abc import Iterator
from hashlib import blake2b
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from unpool.images.checks import read_errors

READ_WHOLE = 1 << 30
"""Bytes up to which the whole file is hashed."""

CHUNK_FOLDER = re.compile(r"c|\d+", re.ASCII)

_BLOCK = 1 << 20
_SAMPLES = 64
_SLAB = 64 << 20


def fingerprint_file(path: Path) -> str:
    """A hash of the content; above 1 GiB, of samples and the modification time."""
    with read_errors(str(path), "a file"):
        size = path.stat().st_size
        digest = _digest(str(size).encode())
        with path.open("rb") as file:
            if size <= READ_WHOLE:
                while block := file.read(_BLOCK):
                    digest.update(block)
                return digest.hexdigest()
            for place in range(_SAMPLES):
                file.seek((size - _BLOCK) * place // (_SAMPLES - 1))
                digest.update(file.read(_BLOCK))
        digest.update(str(path.stat().st_mtime_ns).encode())
        return digest.hexdigest()


def fingerprint_folder(folder: Path) -> str:
    """Equal for the same files: their names, sizes and modification times; links to folders are followed."""
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


def _digest(content: bytes = b"") -> blake2b:
    return blake2b(content, digest_size=16)
