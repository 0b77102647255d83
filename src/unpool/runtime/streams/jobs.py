"""Jobs and their inputs: exact tiles, whose parts are tiles, and blended windows, whose parts are bands of windows."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from math import isfinite, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unpool.display import format_shape
from unpool.errors import FileError, ShapeError, UnpoolError
from unpool.graph.save import external_files
from unpool.graph.shapes import numpy_type
from unpool.images import formats
from unpool.images.axes import Slices, full_slices
from unpool.images.sink import OutputSpec
from unpool.images.source import cast_source, fingerprint_source, source_settings
from unpool.memory import rss
from unpool.onnxruntime.errors import run_session
from unpool.onnxruntime.package import onnxruntime
from unpool.runtime.streams.checkpoint import Settings
from unpool.runtime.streams.output_transform import (
    SOFTMAX_COPIES,
    OutputTransform,
    ScoreFormat,
    output_transform,
    tensor_spec,
)
from unpool.runtime.streams.runner import (
    LOADED_OVERHEAD_BYTES,
    PIPELINE_DEPTH,
    RUNTIME_OVERHEAD_BYTES,
    PartResult,
    Stage,
    TiledJob,
    run_pipeline,
)
from unpool.runtime.tiles.blending import (
    Array,
    Bands,
    BlendAccumulator,
    BlendOptions,
    WindowBatch,
    Windows,
    find_windows,
)
from unpool.runtime.tiles.run import (
    MAX_SIZE,
    compute_tile,
    fit_tiling,
    least_bytes,
    measure_tiling,
    memory_limit_message,
    peak_bytes,
    read_tile,
)
from unpool.runtime.tiles.tiler import Tiler
from unpool.runtime.tiles.tiling import Tile, Tiling, per_axis

if TYPE_CHECKING:
    from unpool.onnxruntime.session import InferenceSession

_log = logging.getLogger("unpool.streams")

AUTO = "auto"
SMALL_RUN_BYTES = 64 << 20  # of a tile that is run to measure what is loaded for it


@dataclass(frozen=True)
class TileRequest:
    """The arguments of `run`, or of `blend` where `blending` is not None."""

    tile: Sequence[int] | int | str
    max_memory: int | None
    outputs: Sequence[str]
    scores: ScoreFormat
    layout: str
    blending: BlendOptions | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "outputs", list(self.outputs))
        if isinstance(self.tile, str) and self.tile != AUTO:
            raise UnpoolError(f'tile: expected "auto", or sizes such as 512 or [512, 384], got {self.tile!r}.')


class ExactTilePlan:
    """The choice of exact tiles for a request. Before `job`, only the shapes and types of the feed count."""

    def __init__(self, session: "InferenceSession", feed: Mapping[str, Any], request: TileRequest) -> None:
        self._session, self._request = session, request
        self._sources = _open_sources(session, feed, request.layout)
        self._tiler = Tiler(session, layout=request.layout, outputs=request.outputs)
        self._shapes = {name: tuple(source.shape) for name, source in self._sources.items()}
        self._overhead_bytes = RUNTIME_OVERHEAD_BYTES

    def least_bytes(self) -> int:
        """Bytes that a run in the smallest tiles takes in addition to those of the process and of the sources."""
        return least_bytes(self._tiler, self._shapes, self._buffer_bytes)

    def load_kernels(self, max_memory: int) -> None:
        """Run the smallest tile on zeros, if it fits or is small, so that the memory of kernels counts as used."""
        if self.least_bytes() - self._overhead_bytes > max(max_memory - rss(), SMALL_RUN_BYTES):
            return
        shapes = {**self._shapes, **self._tiler.smallest_tiling(self._shapes).max_input_shapes()}
        zeros = {name: np.zeros(shapes[name], source.dtype) for name, source in self._sources.items()}
        with suppress(UnpoolError):  # the first tile raises it again
            run_session(self._session, list(self._request.outputs), zeros)
            self._overhead_bytes = LOADED_OVERHEAD_BYTES

    def job(self, earlier: Settings | None) -> TiledJob:
        """The job; inputs that are not cut are read. An earlier run's choice of the tile size is kept."""
        request, cell = self._request, self._tile_size(earlier)
        tiling = self._tiler.tiling(self._shapes, cell, is_even=request.tile == AUTO)
        header = _spatial_header(self._sources)
        transforms = {
            name: output_transform(name, self._tensor_spec(tiling, name, header), request.scores)
            for name in request.outputs
        }
        settings = {
            **base_settings(self._session, self._sources, transforms, request.scores, request.layout),
            "tile": AUTO if request.tile == AUTO else [int(length) for length in cell],
            "cell": [int(length) for length in cell],
            "types": [transform.spec.dtype.str for transform in transforms.values()],
        }
        feed = _load_uncut(self._sources, tiling.inputs)

        def read(tile: Tile) -> tuple[Tile, Any]:
            return tile, read_tile(tile, feed)

        def compute(item: tuple[Tile, Any], options: Any) -> PartResult:
            tile, arrays = item
            outputs = compute_tile(self._session, tiling, tile, arrays, options)
            return tile.number, {name: transforms[name].apply(outputs[name]) for name in tile.targets}

        return TiledJob(
            len(tiling),
            settings,
            transforms,
            windows=lambda part: tiling[part].targets,
            items=lambda parts: (tile for tile in tiling if tile.number in parts),
            stages=lambda options: (read, partial(compute, options=options)),
        )

    def _tile_size(self, earlier: Settings | None) -> Sequence[int]:
        """Elements of the first input for which a tile gives the results, by spatial axis."""
        if not isinstance(self._request.tile, str):
            return per_axis(self._request.tile, len(self._tiler.strides(self._shapes)))
        if earlier is None or "cell" not in earlier:
            fit = fit_tiling(self._tiler, self._shapes, self._request.max_memory, self._buffer_bytes)
            estimate = rss() + peak_bytes(fit, self._buffer_bytes)
            _log.info("estimate: %d MiB at most, in %d tiles of the same shape", estimate >> 20, len(fit.tiling))
            return fit.tile
        cell = earlier["cell"]
        if isinstance(cell, list) and cell and all(type(size) is int and 1 <= size <= MAX_SIZE for size in cell):
            return cell
        raise FileError(f"earlier run: {str(cell)[:80]} are not the sizes of a tile. Delete its files to start over.")

    def require_memory(self, cell: Sequence[int], folder: Path) -> None:
        """Refuse the tiles of an interrupted run, whose data are in a folder, if they exceed a lower limit."""
        limit = self._request.max_memory
        if limit is None:
            return
        used, needed = rss(), peak_bytes(measure_tiling(self._tiler, self._shapes, cell), self._buffer_bytes)
        if used + needed > limit:
            tiles = f"Its tiles are those of the interrupted run, {format_shape(cell)}"
            advice = f"Allow that much, or delete {folder} to start over with smaller ones."
            raise ShapeError(f"{memory_limit_message('max_memory', limit, used, needed)} {tiles}. {advice}")

    def _tensor_spec(self, tiling: Tiling, name: str, header: Any = None) -> OutputSpec:
        """The spec of an output for the full image; one that is equal for every tile is refused."""
        if name not in tiling.outputs:
            raise UnpoolError(f"output {name!r}: does not depend on the image and has no tiles. Run it without tiles.")
        return tiled_spec(self._session, tiling, name, header)

    def _buffer_bytes(self, tiling: Tiling) -> int:
        """Bytes that the pipeline holds in addition to the tile that is being computed."""
        inputs, scores = tiling.max_input_shapes(), self._request.scores
        read = sum(prod(shape) * int(self._sources[name].dtype.itemsize) for name, shape in inputs.items())
        tensors = {name: self._tensor_spec(tiling, name) for name in self._request.outputs}
        specs = [output_transform(name, tensor, scores).spec for name, tensor in tensors.items()]
        results = sum(prod(spec.piece) * spec.dtype.itemsize for spec in specs)
        temporary = max(scores.temporary_bytes(tensor) for tensor in tensors.values())
        return min(PIPELINE_DEPTH, len(tiling)) * (read + results) + temporary + self._overhead_bytes


def blend_job(
    session: "InferenceSession", feed: Mapping[str, Any], request: TileRequest, blending: BlendOptions
) -> TiledJob:
    """The job for overlapping windows; the first ones are run to know the shapes and types of the outputs."""
    names, layout = request.outputs, request.layout
    sources = _open_sources(session, feed, layout)
    windows = find_windows({name: tuple(source.shape) for name, source in sources.items()}, blending, layout)
    loaded = _load_uncut(sources, windows.names)

    def read(batch: WindowBatch) -> tuple[WindowBatch, dict[str, Array]]:
        return batch, windows.read(loaded, batch)

    def compute(item: tuple[WindowBatch, dict[str, Array]], options: Any) -> tuple[WindowBatch, Sequence[Array]]:
        batch, arrays = item
        return batch, run_session(session, list(names), {**loaded, **arrays}, options)

    def stages(options: onnxruntime.RunOptions) -> Sequence[Stage]:
        averages = BlendAccumulator(windows, list(transforms))

        def add(item: tuple[WindowBatch, Sequence[Array]]) -> PartResult | None:
            batch, outputs = item
            rows = averages.add(batch, outputs)
            if rows is None:
                return None
            return batch.band, {name: transforms[name].apply(rows[name]) for name in rows}

        return read, partial(compute, options=options), add

    options = onnxruntime.RunOptions()
    first_batch = next(iter(windows.batches([0])))
    ((_, first),) = run_pipeline([first_batch], (read, partial(compute, options=options)), options)
    bands = {name: Bands(windows, name, array) for name, array in zip(names, first, strict=True)}
    del first  # not counted by the memory check below
    if request.max_memory is not None:
        softmax_copies = SOFTMAX_COPIES if request.scores.softmax else 0
        _require_band_memory(windows, loaded, bands.values(), request.max_memory, softmax_copies)
    header = _spatial_header(sources)
    transforms = {
        name: output_transform(
            name, tensor_spec(session, name, band.shape, band.piece, windows.axes, header), request.scores
        )
        for name, band in bands.items()
    }
    settings = {
        **base_settings(session, sources, transforms, request.scores, layout),
        "blend": {name: _json_value(value) for name, value in {**asdict(blending), "roi_size": windows.roi}.items()},
    }

    def windows_of(part: int) -> Mapping[str, Slices]:
        return {name: band.window(part) for name, band in bands.items()}

    windows_per_band = prod(map(len, windows.starts[1:]))
    return TiledJob(len(windows), settings, transforms, windows_of, windows.batches, stages, windows_per_band)


def _json_value(value: Any) -> Any:
    """A setting as JSON has it, which has no NaN and no tuples."""
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _require_band_memory(
    windows: Windows, feed: Mapping[str, Any], bands: Collection[Bands], max_memory: int, softmax_copies: int
) -> None:
    """Refuse bands that exceed the memory limit; the memory of a run of windows is in use already."""
    batch, sources = windows.blending.sw_batch_size, [feed[name] for name in windows.names]
    elements = prod([windows.images, *windows.sizes])
    read = sum(prod(windows.roi) * source.dtype.itemsize * prod(source.shape) // elements for source in sources)
    outputs = sum(prod(band.sample_shape) * band.dtype.itemsize for band in bands)
    buffers = sum(PIPELINE_DEPTH * band.bytes // 2 + softmax_copies * band.bytes for band in bands)
    held = sum(band.bytes for band in bands)
    used, needed = rss(), held + buffers + PIPELINE_DEPTH * batch * (read + outputs) + RUNTIME_OVERHEAD_BYTES
    if used + needed > max_memory:
        limit = memory_limit_message("max_memory", max_memory, used, needed)
        advice = "Windows that are shorter along the first axis take less."
        raise ShapeError(f"blend: {limit} A band of windows takes that over the width of the image. {advice}")


def _open_sources(session: "InferenceSession", feed: Mapping[str, Any], layout: str) -> dict[str, Any]:
    """By input, an object with a shape and a type that returns windows; a missing input is an error."""
    values = {value.name: value for value in session.get_inputs()}
    if set(values) != set(feed):
        names = f"expected the inputs {', '.join(values)}; got {', '.join(feed) or 'none'}"
        raise UnpoolError(f"feed: {names}. Give a source for each of them, and no other.")
    sources: dict[str, Any] = {}
    for name, source in feed.items():
        if isinstance(source, (str, Path)):
            source = formats.open(source, rank=len(values[name].shape or ()), layout=layout)
        elif not hasattr(source, "shape"):
            source = np.asarray(source)
        sources[name] = cast_source(source, numpy_type(values[name].type), name)
    return sources


def _load_uncut(sources: Mapping[str, Any], cut: Collection[str]) -> dict[str, Any]:
    """The sources; those that are not cut into tiles become arrays."""
    others = [name for name, source in sources.items() if name not in cut and not isinstance(source, np.ndarray)]
    return {**sources, **{name: np.asarray(sources[name][full_slices(sources[name].shape)]) for name in others}}


def _spatial_header(sources: Mapping[str, Any]) -> Any:
    """The header of the input volume; None where no source has one."""
    headers = (getattr(source, "spatial_header", None) for source in sources.values())
    return next((header for header in headers if header is not None), None)


def tiled_spec(session: "InferenceSession", tiling: Tiling, name: str, header: Any = None) -> OutputSpec:
    """The spec of an output with tiles for the full image."""
    field = tiling.trace.fields[name]
    spatial = [number for number, axis in enumerate(field.axes) if axis is not None]
    return tensor_spec(session, name, field.shape, tiling.max_output_shape(name), spatial, header)


def base_settings(
    session: "InferenceSession",
    sources: Mapping[str, Any],
    transforms: Mapping[str, OutputTransform],
    scores: ScoreFormat,
    layout: str,
    fingerprint: Callable[[Any], str] = fingerprint_source,
) -> dict[str, Any]:
    """Fingerprints of the model and its inputs, the semantics, the versions of the packages that run the model, and
    the contents of the outputs.
    """
    return {
        "model": session.fingerprint(),
        "semantics": f"{session.semantics} providers={session.get_providers()}",
        "versions": f"unpool {version('unpool')}, onnxruntime {version('onnxruntime')}",
        "inputs": {name: fingerprint(source) for name, source in sources.items()},
        "options": {name: source_settings(source) for name, source in sources.items()},
        **asdict(scores),
        "outputs": list(transforms),
        "layout": layout,
        "shapes": [list(transform.spec.shape) for transform in transforms.values()],
    }


def input_paths(session: "InferenceSession", feed: Mapping[str, Any]) -> list[Path]:
    """The files that a run reads: the files of the model and of its inputs."""
    paths = list(filter(None, map(source_path, feed.values())))
    if isinstance(session.source, str):
        model = Path(session.source)
        paths += [model, *external_files(model).paths(model)]
    return paths


def source_path(source: Any) -> Path | None:
    """The file or folder of an input; None where it has none, or an unknown one."""
    inner = source
    while not hasattr(inner, "path") and hasattr(inner, "source"):  # a source that casts or scales another one
        inner = inner.source
    if isinstance(inner, np.ndarray):
        while not isinstance(inner, np.memmap) and isinstance(inner.base, np.ndarray):
            inner = inner.base
        path = getattr(inner, "filename", None)
    elif hasattr(inner, "store"):  # an array of zarr, whose path is that in its store
        root = getattr(inner.store, "root", None)
        path = None if root is None else Path(root, getattr(inner, "path", ""))
    else:
        path = inner if isinstance(inner, (str, Path)) else getattr(inner, "path", None)
    return Path(path) if isinstance(path, (str, Path)) else None
