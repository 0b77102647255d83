"""Zarr arrays in folders, window by window: version 2 or 3 is read, version 3 written, in chunks that divide tiles."""

import os
import re
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from unpool.errors import FileError
from unpool.extras import require
from unpool.files import sync_file, sync_folder
from unpool.images.axes import AxisMapping, Slices, axes_for_array
from unpool.images.checks import parse_json, read_errors, read_regular
from unpool.images.sink import OutputSpec, Sink
from unpool.images.source import OpenOptions, TiledSource, fingerprint_folder

MAX_CHUNK_SIDE = 1024  # elements of a chunk along a spatial axis
MAX_CHUNK_BYTES = 16 << 20  # size of a chunk, unless a single channel has more
PACKAGES = ("zarr", "numcodecs")
METADATA = "zarr.json"
MAX_METADATA_BYTES = 1 << 24

MEMBER = re.compile(
    r"(zarr\.json|\.zarray|\.zattrs|c|(c[./])?\d+([./]\d+)*)(\.\w+\.partial)?|zarr\.\w+\.partial|(.*/)?\.DS_Store",
    re.ASCII,
)
"""The files of an array of version 2 or 3: metadata, chunks, files of an interrupted writer, and macOS' own."""


def open_zarr(path: Path, wanted: OpenOptions) -> TiledSource:
    """A Zarr array to read in windows: one alone, or a level of a group as in OME-Zarr."""
    require(str(path), "formats", *PACKAGES)
    from unpool.images.zarr_store import open_zarr_array

    array = open_zarr_array(path, wanted.level)
    arrangement = axes_for_array(array.shape, wanted.rank, wanted.layout, str(path))

    def read(slices: Slices) -> Any:
        return np.asarray(array[slices])

    return TiledSource(path, array.shape, np.dtype(array.dtype), arrangement, read, lambda: fingerprint_folder(path))


def create_zarr(path: Path, written: OutputSpec) -> None:
    """A Zarr array without chunks."""
    require(str(path), "formats", *PACKAGES)
    _create(str(path), written)
    _sync_all(path.rglob("*.json"))


def open_zarr_sink(path: Path, written: OutputSpec) -> Sink:
    """An array that `create_zarr` made, to write."""
    from unpool.images.zarr_store import open_zarr_array

    _require_metadata(path, written)
    array = open_zarr_array(path, is_writable=True)

    def files(slices: Slices) -> Iterator[Path]:
        """Of the chunks that a window touches."""
        pairs = zip(slices, array.chunks, strict=True)
        spans = (range(part.start // size, -(-part.stop // size)) for part, size in pairs)
        return (path.joinpath("c", *map(str, place)) for place in product(*spans))

    def load(slices: Slices) -> Any:
        inner = {place for chunk in files(slices) for place in (chunk, *chunk.parents) if path in place.parents}
        link = next((place for place in sorted(inner) if place.is_symlink()), None)
        if link is not None:  # `_remove_others` removes it
            raise FileError(f"{link}: is a link, and not a chunk or a folder of chunks")
        with read_errors(str(path), "the elements of a tile"):
            return np.asarray(array[slices])

    def repair(windows: Iterable[Slices]) -> None:
        _remove_others(path, {path / METADATA, *chain.from_iterable(map(files, windows))})

    rank = len(written.shape)
    arrangement = AxisMapping(tuple(range(rank)), rank)
    return Sink(written.shape, arrangement, array.__setitem__, load, lambda slices: _sync_all(files(slices)), repair)


def is_zarr_array(folder: Path) -> bool:
    """True for a folder that is a Zarr array of version 2 or 3; False for a group, which may hold other arrays."""
    try:
        if (folder / METADATA).exists():
            document = parse_json(read_regular(folder / METADATA, MAX_METADATA_BYTES))
            return isinstance(document, dict) and document.get("node_type") == "array"
    except (OSError, ValueError):
        return False
    return (folder / ".zarray").is_file() and not (folder / ".zgroup").exists()


def other_member(array: Path) -> Path | None:
    """The first file or link in the folder of a Zarr array that is not of the array, or None."""
    for folder, subfolders, files in os.walk(array):
        links = [name for name in subfolders if os.path.islink(os.path.join(folder, name))]
        for path in (Path(folder, name) for name in sorted([*files, *links])):
            if not MEMBER.fullmatch(path.relative_to(array).as_posix()):
                return path
    return None


def _create(store: Any, written: OutputSpec) -> None:
    import zarr

    shape, dtype = written.shape, written.dtype
    zarr.create_array(store, shape=shape, dtype=dtype, chunks=chunks(written), fill_value=0, zarr_format=3)


def _require_metadata(path: Path, written: OutputSpec) -> None:
    """Refuse an array whose zarr.json differs from what this run writes."""
    from zarr.storage import MemoryStore

    files: dict[str, Any] = {}
    _create(MemoryStore(files), written)
    expected = files[METADATA].to_bytes()
    advice = f"Delete {path.parent} to start over."
    if path.is_symlink():
        raise FileError(f"{path}: is a link, and not the array of an interrupted run. {advice}")
    try:
        content = read_regular(path / METADATA, MAX_METADATA_BYTES)
        if content == expected:
            return
        old = parse_json(content)
    except (OSError, ValueError) as error:
        raise FileError(f"{path / METADATA}: cannot be read ({error}). {advice}") from error
    new = parse_json(expected)
    if not isinstance(old, dict) or old == new:
        raise FileError(f"{path / METADATA}: differs from what this run would write. {advice}")
    name = next(name for name in (*new, *old) if old.get(name) != new.get(name))
    here, there = (str(words.get(name))[:60] for words in (old, new))
    raise FileError(f"{path / METADATA}: its {name} is {here}, this run would write {there}. {advice}")


def _remove_others(folder: Path, kept: Collection[Path]) -> None:
    """Remove all other files of an array: damaged chunks, links, and files of an interrupted writer."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path in kept and path.is_file() and not path.is_symlink():
            continue
        if path.is_symlink() or not path.is_dir():
            path.unlink()
        elif not any(path.iterdir()):
            path.rmdir()


def chunks(written: OutputSpec) -> tuple[int, ...]:
    """Chunks aligned with tiles: along each axis the longest divisor of the tile.

    >>> chunks(OutputSpec((1, 2, 9000, 9000), np.dtype(np.float32), 1, (1, 2, 2048, 1500)))
    (1, 2, 1024, 750)
    """
    lengths = [_divisor(size) for size in written.piece]
    lengths[0] = 1
    if written.channel is not None:
        lengths[written.channel] = written.shape[written.channel]
        if prod(lengths) * written.dtype.itemsize > MAX_CHUNK_BYTES:
            lengths[written.channel] = 1
    return tuple(max(1, size) for size in lengths)


def _sync_all(paths: Iterable[Path]) -> None:
    """Flush chunk files and their folder entries to the disk; a chunk that contains only zeros has no file."""
    folders = set()
    for path in paths:
        folders.add(path.parent)
        if path.exists():
            sync_file(path)
    for folder in filter(Path.exists, folders):
        sync_folder(folder)


def _divisor(size: int) -> int:
    """The longest chunk that divides a size, or half the longest chunk if that is too short."""
    if size <= MAX_CHUNK_SIDE:
        return size
    length = next(length for length in range(MAX_CHUNK_SIDE, 0, -1) if size % length == 0)
    return length if length >= MAX_CHUNK_SIDE // 8 else MAX_CHUNK_SIDE // 2
