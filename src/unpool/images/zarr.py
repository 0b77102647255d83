"""Zarr arrays of version 3 in folders, window by window; chunks fit the tiles, so that each is written once."""

import os
import re
from collections.abc import Collection, Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from unpool.errors import FileError
from unpool.extras import require
from unpool.files import sync, sync_folder
from unpool.images.axes import AxisMapping, Slices, axes_for_array
from unpool.images.checks import parse_json, read_errors, read_regular
from unpool.images.fingerprint import fingerprint_folder
from unpool.images.sink import OutputSpec, Sink
from unpool.images.source import OpenOptions, TiledSource

LONGEST = 1024
"""Elements of a chunk along a spatial axis, at most."""

LARGEST = 16 << 20
"""Bytes of a chunk, at most, unless a single channel has more."""

PACKAGES = ("zarr", "numcodecs")
METADATA = "zarr.json"
LONGEST_METADATA = 1 << 24
"""Bytes of a zarr.json at most."""

MEMBER = re.compile(
    r"(zarr\.json|\.zarray|\.zattrs|c|(c[./])?\d+([./]\d+)*)(\.\w+\.partial)?|zarr\.\w+\.partial|(.*/)?\.DS_Store",
    re.ASCII,
)
"""The files of an array of version 2 or 3: metadata, chunks, what an interrupted writer left, and macOS' own."""


def open_zarr(path: Path, wanted: OpenOptions) -> TiledSource:
    """A Zarr array to read, of version 2 or 3; of a group of levels, as OME-Zarr writes it, the one that is wanted.

    Raises:
        FileError: no such array.
        ShapeError: its axes are not those of the tensor, or a chunk is larger than the memory.
        UnsupportedError: a codec or a type that is not read.
        MissingExtraError: zarr is not installed.
    """
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
    sync_all(path.rglob("*.json"))


def open_zarr_sink(path: Path, written: OutputSpec) -> Sink:
    """A Zarr array to write.

    Raises:
        FileError: its zarr.json is not the one that `create_zarr` writes.
    """
    from unpool.images.zarr_store import open_zarr_array

    _require_metadata(path, written)
    array = open_zarr_array(path, is_writable=True)

    def store(slices: Slices, part: Any) -> None:
        array[slices] = part

    def load(slices: Slices) -> Any:
        _refuse_links(path, _touched(slices, array.chunks))
        with read_errors(str(path), "the elements of a tile"):
            return np.asarray(array[slices])

    def synced(slices: Slices) -> None:
        names = ("/".join(map(str, ("c", *place))) for place in _touched(slices, array.chunks))
        sync_all(path / name for name in names)

    def repair(windows: Iterable[Slices]) -> None:
        kept = {path / METADATA}
        for slices in windows:
            kept |= {path.joinpath("c", *map(str, place)) for place in _touched(slices, array.chunks)}
        _remove_others(path, kept)

    arrangement = AxisMapping(tuple(range(len(written.shape))), len(written.shape))
    return Sink(written.shape, arrangement, store, load, synced, repair)


def is_zarr_array(folder: Path) -> bool:
    """True for a folder that is a Zarr array of version 2 or 3; a group, which may hold other arrays, is none."""
    try:
        if (folder / METADATA).exists():
            found = parse_json(read_regular(folder / METADATA, LONGEST_METADATA))
            return isinstance(found, dict) and found.get("node_type") == "array"
    except (OSError, ValueError):
        return False
    return (folder / ".zarray").is_file() and not (folder / ".zgroup").exists()


def other_member(array: Path) -> Path | None:
    """The first file or link in the folder of a Zarr array that is not of the array; None where there is none."""
    for folder, subfolders, files in os.walk(array):
        links = [name for name in subfolders if os.path.islink(os.path.join(folder, name))]
        for path in (Path(folder, name) for name in sorted([*files, *links])):
            if not MEMBER.fullmatch(path.relative_to(array).as_posix()):
                return path
    return None


def _create(store: Any, written: OutputSpec) -> Any:
    import zarr

    return zarr.create_array(
        store, shape=written.shape, dtype=written.dtype, chunks=chunks(written), fill_value=0, zarr_format=3
    )


def _require_metadata(path: Path, written: OutputSpec) -> None:
    """Refuse an array whose zarr.json differs from what this run writes."""
    from zarr.storage import MemoryStore

    made: dict[str, Any] = {}
    _create(MemoryStore(made), written)
    expected = made[METADATA].to_bytes()
    way = f"Delete {path.parent} to start over."
    if path.is_symlink():
        raise FileError(f"{path}: is a link, and not the array of an interrupted run. {way}")
    try:
        content = read_regular(path / METADATA, LONGEST_METADATA)
        if content == expected:
            return
        found = parse_json(content)
    except (OSError, ValueError) as error:
        raise FileError(f"{path / METADATA}: cannot be read ({error}). {way}") from error
    wanted = parse_json(expected)
    if not isinstance(found, dict) or found == wanted:
        raise FileError(f"{path / METADATA}: differs from that of this run. {way}")
    name = next(name for name in (*wanted, *found) if found.get(name) != wanted.get(name))
    here, there = (str(words.get(name))[:60] for words in (found, wanted))
    raise FileError(f"{path / METADATA}: its {name} is {here}, that of this run {there}. {way}")


def _refuse_links(folder: Path, places: Iterable[tuple[int, ...]]) -> None:
    """Refuse chunks that are links or inside a linked folder: `_remove_others` removes the links.

    Raises:
        FileError: such a chunk.
    """
    chunks = [folder.joinpath("c", *map(str, place)) for place in places]
    inner = {path for chunk in chunks for path in (chunk, *chunk.parents) if folder in path.parents}
    link = next((path for path in sorted(inner) if path.is_symlink()), None)
    if link is not None:
        raise FileError(f"{link}: is a link, and not a chunk or a folder of chunks")


def _remove_others(folder: Path, kept: Collection[Path]) -> None:
    """Remove all of an array but some of its files: damaged chunks, links, and what an interrupted writer left."""
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
    found = [_divisor(size) for size in written.piece]
    found[0] = 1
    if written.channel is not None:
        found[written.channel] = written.shape[written.channel]
        if np.prod(found, dtype=object) * written.dtype.itemsize > LARGEST:
            found[written.channel] = 1
    return tuple(max(1, size) for size in found)


def sync_all(paths: Any) -> None:
    """Return when files and the names in their folders are on the disk; chunks of zeros alone have no file."""
    folders = set()
    for path in paths:
        if path.exists():
            with path.open("rb") as file:
                sync(file.fileno())
        if path.parent.exists():
            folders.add(path.parent)
    for folder in folders:
        sync_folder(folder)


def _divisor(size: int) -> int:
    """The longest that divides a size; where that is short, one that does not."""
    if size <= LONGEST:
        return size
    found = next(length for length in range(LONGEST, 0, -1) if size % length == 0)
    return found if found >= LONGEST // 8 else LONGEST // 2


def _touched(slices: Slices, lengths: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The places of the chunks that a window touches."""
    return product(
        *(range(part.start // length, -(-part.stop // length)) for part, length in zip(slices, lengths, strict=True))
    )
