"""The Zarr arrays of a run on a cluster: workers write chunks, and a later run continues from those that exist.

    create     the array, or a group with an array for each of several outputs; `unpool_finished` is false
    a tile     its chunks, which no other tile writes to; also those of zeros, so that they are known to be written
    finish     `unpool_finished` becomes true

`unpool_settings` are the settings of the run. A run that resumes it must have the same settings.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from unpool.errors import FileError, UnsupportedError
from unpool.images.axes import Slices, normalize_slices
from unpool.runtime.streams.checkpoint import Checkpoint, Settings, require_same_settings
from unpool.runtime.streams.output_transform import OutputTransform
from unpool.runtime.tiles.tiling import Tiling
from unpool.runtime.tiles.walk import Shape

MAX_CHUNK_LENGTH = 1024  # along a spatial axis, unless the length of a tile has no divisor close to it
FINISHED = "unpool_finished"  # the attribute that becomes true when all tiles are written
SETTINGS = "unpool_settings"


@dataclass(frozen=True)
class ZarrLocation:
    """A path, URL or store; a single output is an array there, several are arrays in a group."""

    store: Any
    names: tuple[str, ...]  # of the outputs with tiles
    is_group: bool

    @cached_property
    def arrays(self) -> dict[str, Any]:
        """The arrays by output, to be written."""
        import zarr

        with zarr.config.set({"array.write_empty_chunks": True}):  # an array has it from when it is opened
            return {name: zarr.open_array(self.store, path=self.path(name), mode="r+") for name in self.names}

    def path(self, name: str) -> str:
        """The path of an output's array in the store."""
        return name.strip("/") if self.is_group else ""


class ZarrOutputs:
    """The outputs of one run, as Zarr arrays."""

    def __init__(
        self, store: Any, names: tuple[str, ...], tiling: Tiling, transforms: Mapping[str, OutputTransform]
    ) -> None:
        self.location = ZarrLocation(store, tuple(tiling.outputs), len(names) != 1)
        self.arrays: dict[str, Any] = {}
        self._names, self._tiling, self._transforms = names, tiling, transforms
        self._root: Any = None
        self._attributes: Mapping[str, Any] = {}  # of an array that is the root

    def find(self, settings: Settings, *, resume: bool) -> bool:
        """Find an earlier run at the place, which is free without one; True if that run is complete."""
        import zarr

        try:
            self._root = zarr.open(self.location.store, mode="r+")
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            raise self._taken(str(error)) from error
        place, is_complete = self.location.store, self._root.attrs.get(FINISHED)
        if is_complete is False and not resume:
            advice = "Add --resume (in Python resume=True), or delete it to start over."
            raise FileError(f"{place}: is left from an interrupted run. {advice}")
        earlier = self._root.attrs.get(SETTINGS)
        if not resume or is_complete is None or not isinstance(earlier, dict):
            raise self._taken(f"a Zarr {'group' if isinstance(self._root, zarr.Group) else 'array'} that exists")
        require_same_settings(Checkpoint(earlier, bool(is_complete)), settings, place, place)
        self.arrays = self._open_arrays()
        return bool(is_complete)

    def create(self, settings: Settings) -> None:
        """Create the group and the arrays that do not exist yet."""
        attributes = {FINISHED: False, SETTINGS: settings}
        if self._root is None and self.location.is_group:
            self._root = self._create(lambda zarr: zarr.create_group(self.location.store, attributes=attributes))
        self._attributes = {} if self.location.is_group else attributes
        for name in self._tiling.outputs:
            if name in self.arrays:
                continue
            spec, lengths = self._transforms[name].spec, list[Any](chunk_shape(self._tiling, name))
            chunks: Any = self._transforms[name].window(tuple(lengths))
            self._create_array(name, spec.shape, chunks, spec.dtype)

    def finished_tiles(self) -> set[int]:
        """Numbers of the tiles of which all chunks exist; none while an output without tiles is missing."""
        written = {name: (_chunk_keys(self.arrays[name]), self.arrays[name]) for name in self._tiling.outputs}
        finished = set()
        for tile in self._tiling:
            windows = {name: self._transforms[name].window(slices) for name, slices in tile.targets.items()}
            if all(written[name][0].issuperset(_keys_of(written[name][1], slices)) for name, slices in windows.items()):
                finished.add(tile.number)
        if any(name not in self.arrays for name in self._tiling.constant_outputs):
            finished.discard(next(iter(self._tiling)).number)
        return finished

    def add(self, arrays: Mapping[str, Any]) -> None:
        """Write outputs that are equal for every tile, unless they exist."""
        for name, array in arrays.items():
            if name not in self.arrays:
                if array.dtype.kind not in "?biuf":
                    fact = f"expected a type that Zarr has, got {array.dtype}. Choose other outputs."
                    raise UnsupportedError(f"{self.location.store}: output {name!r}: {fact}")
                self._create_array(name, array.shape, array.shape, array.dtype)[...] = array

    def finish(self) -> None:
        """Mark the arrays as complete."""
        root = self.arrays[self._names[0]] if self._root is None else self._root
        root.attrs[FINISHED] = True

    def _open_arrays(self) -> dict[str, Any]:
        if not self.location.is_group:
            return {self._names[0]: self._root}
        return {name: self._root[path] for name in self._names if (path := self.location.path(name)) in self._root}

    def _create_array(self, name: str, shape: Shape, chunks: Iterable[int], dtype: "np.dtype[Any]") -> Any:
        kind = np.dtype(dtype.str)  # onnxruntime's int64 is NumPy's longlong, which Zarr does not know
        options = {"shape": shape, "chunks": tuple(max(1, size) for size in chunks), "dtype": kind, "fill_value": 0}
        store, path = self.location.store, self.location.path(name)
        make = {**options, "attributes": dict(self._attributes)}
        self.arrays[name] = self._create(lambda zarr: zarr.create_array(store, name=path or None, **make))
        return self.arrays[name]

    def _create(self, make: Any) -> Any:
        import zarr

        try:
            return make(zarr)
        except (OSError, ValueError) as error:  # zarr's own errors are ValueErrors
            raise self._taken(str(error)) from error

    def _taken(self, reason: str) -> FileError:
        return FileError(
            f"{self.location.store}: expected a free place for Zarr arrays, got {reason.rstrip('.')}. Choose another, "
            "or delete it."
        )


def local_folder(to: Any) -> Path | None:
    """The folder of Zarr arrays; None for a URL, or a store that is no folder.

    >>> local_folder("masks/a.zarr").name, local_folder("s3://masks/a.zarr")
    ('a.zarr', None)
    """
    if isinstance(to, (str, Path)):
        return None if "://" in str(to) else Path(to)
    root = getattr(getattr(to, "store", to), "root", None)
    return None if root is None else Path(root, getattr(to, "path", ""))


def chunk_shape(tiling: Tiling, name: str) -> Shape:
    """The chunks of an output: a tile, or equal parts of it.

    >>> [_chunk_length(length) for length in (512, 4096, 3000, 4099)]
    [512, 1024, 1000, 4099]
    """
    spans = [next(cell.output_spans[name] for cell in cells if name in cell.output_spans) for cells in tiling.cells]
    return tiling.trace.fields[name].shape_for([_chunk_length(span.stop - span.first) for span in spans])


def _chunk_length(length: int) -> int:
    """The largest divisor of a length up to MAX_CHUNK_LENGTH; the length itself where that is too short."""
    divisors = (length // count for count in range(1, length + 1) if length % count == 0)
    chunk = next((divisor for divisor in divisors if divisor <= MAX_CHUNK_LENGTH), length)
    return chunk if chunk * 16 > MAX_CHUNK_LENGTH or chunk == length else length


def _chunk_keys(array: Any) -> set[str]:
    """The keys of an array's files in its store."""
    from zarr.core.sync import sync

    prefix = f"{array.path}/" if array.path else ""

    async def keys() -> set[str]:
        return {key.removeprefix(prefix) async for key in array.store.list_prefix(prefix)}

    found: set[str] = sync(keys())
    return found


def _keys_of(array: Any, window: Slices) -> Iterable[str]:
    """The keys of the chunks of a window."""
    pairs = zip(normalize_slices(window, array.shape), array.chunks, strict=True)
    spans = (range(part.start // size, -(-part.stop // size)) for part, size in pairs)
    return (array.metadata.encode_chunk_key(place) for place in product(*spans))
