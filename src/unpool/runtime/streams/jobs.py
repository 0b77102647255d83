"""The two kinds of jobs: exact tiles, whose parts are tiles, and blended windows, whose parts are bands of windows."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import isfinite, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from unpool.errors import FileError, ShapeError, UnpoolError
from unpool.images.axes import Slices
from unpool.images.sink import OutputSpec
from unpool.memory import rss
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.streams.checkpoint import Settings
from unpool.runtime.streams.inputs import base_settings, load_uncut, open_sources, spatial_header
from unpool.runtime.streams.output_transform import (
    SOFTMAX_COPIES,
    OutputTransform,
    ScoreFormat,
    output_transform,
    tensor_spec,
)
from unpool.runtime.streams.runner import PIPELINE_DEPTH, RUNTIME_OVERHEAD_BYTES, PartResult, Stage, run_pipeline
from unpool.runtime.tiles.blending import (
    Array,
    Bands,
    BlendAccumulator,
    BlendOptions,
    WindowBatch,
    Windows,
    find_windows,
)
from unpool.runtime.tiles.run import MAX_SIZE, compute_tile, fit_tiling, least_bytes, memory_limit_message, read_tile
from unpool.runtime.tiles.tiler import Tiler
from unpool.runtime.tiles.tiling import Tile, Tiling

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

AUTO = "auto"


@dataclass(frozen=True)
class TileRequest:
    """The arguments of `run`, or of `blend` where `blending` is not None."""

    tile: Sequence[int] | str
    max_memory: int | None
    outputs: Sequence[str]
    scores: ScoreFormat
    layout: str
    blending: BlendOptions | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "outputs", list(self.outputs))
        if not isinstance(self.tile, str):
            object.__setattr__(self, "tile", [int(length) for length in self.tile])
        elif self.tile != AUTO:
            raise UnpoolError(
                f'tile: expected "auto" or a size per spatial axis, got {self.tile!r}. Pass a list such as [512, 512].'
            )


@dataclass(frozen=True)
class ExactTileJob:
    """A job whose parts are exact tiles; inputs in its feed that are not cut are arrays."""

    session: "InferenceSession"
    tiling: Tiling
    feed: Mapping[str, Any]
    transforms: Mapping[str, OutputTransform]
    settings: Settings

    def __len__(self) -> int:
        return len(self.tiling)

    def windows(self, part: int) -> Mapping[str, Slices]:
        """The windows of a tile in the outputs to which it contributes."""
        return self.tiling[part].targets

    def items(self, parts: Collection[int]) -> Iterable[Tile]:
        """These tiles."""
        return (tile for tile in self.tiling if tile.number in parts)

    def stages(self, options: onnxruntime.RunOptions) -> Sequence[Stage]:
        """Read a tile, and compute it."""

        def read(tile: Tile) -> tuple[Tile, Any]:
            return tile, read_tile(tile, self.feed)

        def compute(item: tuple[Tile, Any]) -> PartResult:
            tile, feed = item
            outputs = compute_tile(self.session, self.tiling, tile, feed, options)
            return tile.number, {name: self.transforms[name].apply(outputs[name]) for name in tile.targets}

        return read, compute


class ExactTilePlan:
    """The choice of exact tiles for a request. Before `job`, only the shapes and types of the feed count."""

    def __init__(self, session: "InferenceSession", feed: Mapping[str, Any], request: TileRequest) -> None:
        self._session, self._request = session, request
        self._sources = open_sources(session, feed, request.layout)
        self._tiler = Tiler(session, layout=request.layout, outputs=request.outputs)
        self._shapes = {name: tuple(source.shape) for name, source in self._sources.items()}

    def least_bytes(self) -> int:
        """Bytes that a run in the smallest tiles takes in addition to those of the process and of the sources."""
        return least_bytes(self._tiler, self._shapes, self._buffer_bytes)

    def load_kernels(self, max_memory: int) -> None:
        """Run the smallest tile on zeros, if it fits, so that the memory of kernels and packages counts as used."""
        if rss() + self.least_bytes() > max_memory:
            return
        strides = self._tiler.strides(self._shapes)
        smallest = self._tiler.tiling(self._shapes, [max(strides)] * len(strides), is_even=True)
        shapes = {**self._shapes, **smallest.max_input_shapes()}
        zeros = {name: np.zeros(shapes[name], source.dtype) for name, source in self._sources.items()}
        with suppress(UnpoolError):  # the first tile raises it again
            self._session.run(list(self._request.outputs), zeros)

    def job(self, earlier: Settings | None) -> ExactTileJob:
        """The job; inputs that are not cut are read. A tile size that memory chose is that of an earlier run."""
        request, cell = self._request, self._tile_size(earlier)
        tiling = self._tiler.tiling(self._shapes, cell, is_even=request.tile == AUTO)
        header = spatial_header(self._sources)
        transforms = {
            name: output_transform(name, self._tensor_spec(tiling, name, header), request.scores)
            for name in request.outputs
        }
        settings = {
            **base_settings(self._session, self._sources),
            **asdict(request.scores),
            "tile": request.tile,
            "max_memory": request.max_memory,
            "outputs": request.outputs,
            "layout": request.layout,
            "cell": [int(length) for length in cell],
            "types": [transform.spec.dtype.str for transform in transforms.values()],
            "shapes": [list(transform.spec.shape) for transform in transforms.values()],
        }
        return ExactTileJob(self._session, tiling, load_uncut(self._sources, tiling.inputs), transforms, settings)

    def _tile_size(self, earlier: Settings | None) -> Sequence[int]:
        """Elements of the first input for which a tile gives the results, by spatial axis."""
        if not isinstance(self._request.tile, str):
            return self._request.tile
        if earlier is None or "cell" not in earlier:
            return fit_tiling(self._tiler, self._shapes, self._request.max_memory, self._buffer_bytes).tile
        cell = earlier["cell"]
        if isinstance(cell, list) and cell and all(type(size) is int and 1 <= size <= MAX_SIZE for size in cell):
            return cell
        raise FileError(
            f"earlier run: {str(cell)[:80]} are not the sizes of a tile. Delete what it left to start over."
        )

    def _tensor_spec(self, tiling: Tiling, name: str, header: Any = None) -> OutputSpec:
        """The spec of an output for the full image; one that is equal for every tile is refused."""
        if name not in tiling.outputs:
            raise UnpoolError(
                f"output {name!r}: does not depend on the image, so it cannot be cut into tiles. Run it without tiles."
            )
        field = tiling.trace.fields[name]
        spatial = [number for number, axis in enumerate(field.axes) if axis is not None]
        return tensor_spec(self._session, name, field.shape, tiling.max_output_shape(name), spatial, header)

    def _buffer_bytes(self, tiling: Tiling) -> int:
        """Bytes that the pipeline holds in addition to the tile that is being computed."""
        inputs = tiling.max_input_shapes()
        read = sum(prod(shape) * int(self._sources[name].dtype.itemsize) for name, shape in inputs.items())
        specs = [self._tensor_spec(tiling, name) for name in self._request.outputs]
        results = sum(prod(spec.piece) * spec.dtype.itemsize for spec in specs)
        softmax = SOFTMAX_COPIES * results if self._request.scores.softmax else 0
        return PIPELINE_DEPTH * (read + results) + softmax + RUNTIME_OVERHEAD_BYTES


@dataclass(frozen=True)
class BlendJob:
    """A job whose parts are bands of overlapping windows, by output."""

    reader: "_WindowRunner"
    bands: Mapping[str, Bands]
    transforms: Mapping[str, OutputTransform]
    settings: Settings

    def __len__(self) -> int:
        return len(self.reader.windows)

    def windows(self, part: int) -> Mapping[str, Slices]:
        """The windows of a band in the outputs."""
        return {name: bands.window(part) for name, bands in self.bands.items()}

    def items(self, parts: Collection[int]) -> Iterable[WindowBatch]:
        """The batches of windows that contribute to these bands."""
        return self.reader.windows.batches(parts)

    def stages(self, options: onnxruntime.RunOptions) -> Sequence[Stage]:
        """Read windows, compute them, and add them to the averages."""
        averages = BlendAccumulator(self.reader.windows, list(self.transforms))

        def add(item: tuple[WindowBatch, Sequence[Array]]) -> PartResult | None:
            batch, outputs = item
            rows = averages.add(batch, outputs)
            if rows is None:
                return None
            return batch.band, {name: self.transforms[name].apply(rows[name]) for name in rows}

        return (*self.reader.stages(options), add)


@dataclass(frozen=True)
class _WindowRunner:
    """The windows of a feed, and the session that runs them; inputs that are not cut are arrays."""

    session: "InferenceSession"
    names: Sequence[str]
    windows: Windows
    feed: Mapping[str, Any]

    def stages(self, options: onnxruntime.RunOptions) -> tuple[Stage, Stage]:
        """Read windows, and compute them."""

        def read(batch: WindowBatch) -> tuple[WindowBatch, dict[str, Array]]:
            return batch, self.windows.read(self.feed, batch)

        def compute(item: tuple[WindowBatch, dict[str, Array]]) -> tuple[WindowBatch, Sequence[Array]]:
            batch, arrays = item
            return batch, self.session.run(list(self.names), {**self.feed, **arrays}, options)

        return read, compute

    def run_first(self) -> Sequence[Array]:
        """The outputs of the first run, which show the shapes and types of all."""
        options = onnxruntime.RunOptions()
        first_batch = next(iter(self.windows.batches([0])))
        ((_, outputs),) = run_pipeline([first_batch], self.stages(options), options)
        first: Sequence[Array] = outputs
        return first


def blend_job(
    session: "InferenceSession", feed: Mapping[str, Any], request: TileRequest, blending: BlendOptions
) -> BlendJob:
    """The job for overlapping windows; the first ones are run to know the shapes and types of the outputs."""
    names, layout = request.outputs, request.layout
    sources = open_sources(session, feed, layout)
    windows = find_windows({name: tuple(source.shape) for name, source in sources.items()}, blending, layout)
    reader = _WindowRunner(session, names, windows, load_uncut(sources, windows.names))
    bands = {name: Bands(windows, name, array) for name, array in zip(names, reader.run_first(), strict=True)}
    if request.max_memory is not None:
        _require_band_memory(reader, bands.values(), request.scores, request.max_memory)
    header = spatial_header(sources)
    transforms = {
        name: output_transform(
            name, tensor_spec(session, name, band.shape, band.piece, windows.axes, header), request.scores
        )
        for name, band in bands.items()
    }
    settings = {
        **base_settings(session, sources),
        "blend": {name: _json_value(value) for name, value in asdict(blending).items()},
        "outputs": list(names),
        **asdict(request.scores),
        "layout": layout,
        "shapes": [list(transform.spec.shape) for transform in transforms.values()],
    }
    return BlendJob(reader, bands, transforms, settings)


def _json_value(value: Any) -> Any:
    """A setting as JSON has it, which has no NaN and no tuples."""
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _require_band_memory(reader: _WindowRunner, bands: Collection[Bands], scores: ScoreFormat, max_memory: int) -> None:
    """Refuse bands that exceed the memory limit; the memory of a run of windows is in use already."""
    windows, batch = reader.windows, reader.windows.blending.sw_batch_size
    sources = [reader.feed[name] for name in windows.names]
    elements = prod([windows.images, *windows.sizes])
    read = sum(prod(windows.roi) * source.dtype.itemsize * prod(source.shape) // elements for source in sources)
    outputs = sum(prod(band.sample_shape) * band.dtype.itemsize for band in bands)
    softmax = SOFTMAX_COPIES if scores.softmax else 0
    buffers = sum(PIPELINE_DEPTH * band.bytes // 2 + softmax * band.bytes for band in bands)
    held = sum(band.bytes for band in bands)
    used, needed = rss(), held + buffers + PIPELINE_DEPTH * batch * (read + outputs) + RUNTIME_OVERHEAD_BYTES
    if used + needed > max_memory:
        limit = memory_limit_message("max_memory", max_memory, used, needed)
        raise ShapeError(
            f"blend: {limit} A band of windows takes that over the width of the image. Windows that are shorter along "
            "the first axis take less."
        )
