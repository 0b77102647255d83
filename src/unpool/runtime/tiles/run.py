"""Runs tiles in memory: reads a tile, computes it, and writes its results into the outputs of the image.

Tiles are of a given size, or the largest ones whose run fits into a memory limit.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unpool.display import format_bytes
from unpool.errors import ShapeError, UnpoolError, UnsupportedError
from unpool.indices import from_part
from unpool.memory import available, rss
from unpool.onnxruntime.errors import run_session
from unpool.onnxruntime.package import onnxruntime
from unpool.runtime.tiles.tiler import Tiler
from unpool.runtime.tiles.tiling import Tile, Tiling, balance_length
from unpool.runtime.tiles.walk import Shape

if TYPE_CHECKING:
    from unpool.onnxruntime.session import InferenceSession

Arrays = dict[str, np.ndarray[Any, Any]]
Progress = Callable[[Iterable[Tile]], Iterable[Tile]]
BufferBytes = Callable[[Tiling], int]

FREE_SHARE = 0.5  # of the free memory that a run may take by default
FORECAST_MARGIN = 0.3  # share by which a run may exceed its forecast
MAX_SIZE = 2**40  # no image exceeds it


def run(
    session: "InferenceSession",
    feed: Mapping[str, Any],
    tile: Sequence[int] | int | str = "auto",
    *,
    max_memory: int | None = None,
    outputs: Iterable[str] | None = None,
    inputs: Iterable[str] | None = None,
    layout: str = "NCHW",
    progress: Progress = iter,
) -> Arrays:
    """The outputs of a model, computed tile by tile: the results of `session.run`, in less memory.

    Convolutions, pools, unpools, transposed convolutions and operators that treat every element alike can be tiled
    exactly: a tile reads its receptive field. Results are equal bit for bit, except where a backend adds floats in
    another order for another size, and in the last bits of Exp, Tanh and others that onnxruntime rounds differently
    at the end of an array. The page "Images and volumes larger than memory" lists them.

    Args:
        session: that runs the tiles.
        feed: every input by name.
        tile: elements of the first input for which one tile gives the results, by spatial axis, or one number for all,
            rounded down to a multiple of the total stride; "auto" takes the largest that fits into memory.
        max_memory: limit of the memory of the process in bytes, for "auto"; by default the memory in use, and half of
            what is free.
        outputs: names of the outputs; by default all.
        inputs: names of the inputs to cut; by default all of the highest rank.
        layout: "NCHW" where inputs have channels before the spatial axes, one or more of them; or "NHWC".
        progress: wraps the iteration over tiles, such as `tqdm.tqdm`.

    Returns:
        the outputs by name.

    Raises:
        UnsupportedError: a node does not treat every position of the image alike; the message names it.
        ShapeError: even the smallest tile takes too much memory.
        UnpoolError: no input is an image, or `tile` does not fit it.

    >>> import numpy as np
    >>> from onnx import parser
    >>> from unpool import InferenceSession
    >>> session = InferenceSession(parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     shrink (float[1, 1, length] x) => (float[1, 1, half] y) {
    ...         y = MaxPool <kernel_shape = [3], strides = [2], pads = [1, 1]> (x)
    ...     }'''))
    >>> x = np.float32([[[1, 5, 2, 4, 3, 9, 7, 8]]])
    >>> run(session, {"x": x}, (4,))["y"].tolist()
    [[[5.0, 5.0, 9.0, 9.0]]]
    """
    tiler = Tiler(session, layout=layout, inputs=inputs, outputs=outputs)
    shapes = {name: np.shape(array) for name, array in feed.items()}
    if isinstance(tile, str):
        if tile != "auto":
            raise UnpoolError(f'tile: expected "auto", or sizes such as 512 or [512, 384], got {tile!r}.')
        tiling = fit_tiling(tiler, shapes, max_memory).tiling
    else:
        tiling = tiler.tiling(shapes, tile)
    return run_tiling(session, tiling, feed, progress)


def run_tile(session: "InferenceSession", tiling: Tiling, tile: Tile, feed: Mapping[str, Any]) -> Arrays:
    """The results of one tile of a tiling, by output: the elements for `tile.targets`, with indices in the whole image.

    Args:
        session: whose model the tiling was made for.
        tiling: of the whole image.
        tile: one of its tiles.
        feed: every input; of those that are cut, anything that gives an array for `feed[name][slices]`, such as an
            array, a memory map or a Zarr array.

    Returns:
        those elements, and the outputs that are equal for every tile.
    """
    return compute_tile(session, tiling, tile, read_tile(tile, feed))


def read_tile(tile: Tile, feed: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inputs of a tile; those that are cut are read, and are arrays."""
    read = {name: np.ascontiguousarray(feed[name][slices]) for name, slices in tile.inputs.items()}
    return {**feed, **read}


def compute_tile(
    session: "InferenceSession",
    tiling: Tiling,
    tile: Tile,
    read: Mapping[str, Any],
    run_options: onnxruntime.RunOptions | None = None,
) -> Arrays:
    """The results of `run_tile` for the inputs of `read_tile`; `run_options` are those of `session.run`."""
    names = [*tile.crops, *tiling.constant_outputs]
    if not names:  # outputs that end before the image may have no elements in its last corner
        return {}
    results = dict(zip(names, run_session(session, names, read, run_options), strict=True))
    for name, crop in tile.crops.items():
        array = results[name]
        if array.shape != tile.output_shapes[name]:
            raise UnsupportedError(
                f"tiles: output {name!r} of tile {tile.number}: expected the shape {list(tile.output_shapes[name])} by "
                f"the graph, got {list(array.shape)}. Run the image whole."
            )
        shift = tile.index_shifts.get(name)
        results[name] = array[crop] if shift is None else from_part(array[crop], *shift)
    return results


def write_tile(outputs: Mapping[str, Any], tile: Tile, results: Mapping[str, Any]) -> None:
    """Write the results of a tile into the outputs of the image: arrays, or objects with `output[slices] = array`."""
    for name, slices in tile.targets.items():
        outputs[name][slices] = results[name]


def run_tiling(
    session: "InferenceSession", tiling: Tiling, feed: Mapping[str, Any], progress: Progress = iter
) -> Arrays:
    """The outputs for the whole image, tile by tile.

    Args:
        session: whose model the tiling was made for.
        tiling: of the whole image.
        feed: every input.
        progress: wraps the iteration over tiles, such as `tqdm.tqdm`.

    Returns:
        the outputs by name, equal to those of `session.run` on the whole image, as `run` says.
    """
    outputs: Arrays = {}
    for tile in progress(tiling):
        results = run_tile(session, tiling, tile, feed)
        for name in tiling.outputs:
            if name in results and name not in outputs:
                outputs[name] = np.empty(tiling.shape(name), results[name].dtype)
        write_tile(outputs, tile, results)
        outputs |= {name: results[name] for name in tiling.constant_outputs}
    return outputs


class TilingFit(NamedTuple):
    """A tiling, a forecast of the bytes that a run of one of its tiles takes, and the size of its cells."""

    tiling: Tiling
    bytes: int
    tile: tuple[int, ...]


def fit_tiling(
    tiler: Tiler, shapes: Mapping[str, Shape], max_memory: int | None, buffer_bytes: BufferBytes | None = None
) -> TilingFit:
    """The tiling with the largest tiles that fit: the whole image, or else cells of about equal length on all axes.

    All tiles read parts of one shape, so that backends can use their memory of the first one for all.

    Args:
        tiler: of the session.
        shapes: of all inputs that are fed.
        max_memory: limit of the memory of the process in bytes, with the inputs in memory and the outputs of the whole
            image; by default the memory in use, and half of what is free.
        buffer_bytes: memory in addition to the run of a tile; by default the outputs of the whole image.

    Raises:
        ShapeError: even the smallest tile exceeds the limit.
        UnsupportedError: the graph cannot be tiled exactly.
    """
    strides, buffers = tiler.strides(shapes), buffer_bytes or tiler.output_bytes
    whole, used = measure_tiling(tiler, shapes, [MAX_SIZE] * len(strides)), rss()
    budget = int(available() * FREE_SHARE) if max_memory is None else max_memory - used
    if peak_bytes(whole, buffers) <= budget:
        return whole
    sizes, unit = [axis.size for axis in whole.tiling.axes], max(strides)

    def peak(length: int) -> int:
        return peak_bytes(measure_tiling(tiler, shapes, [length] * len(sizes)), buffers)

    lengths = range(unit, max(sizes) + 1, unit)
    fitting = bisect_right(lengths, budget, key=peak)
    if not fitting:
        limit = used + max(0, budget) if max_memory is None else max_memory
        needed = least_bytes(tiler, shapes, buffers)
        raise ShapeError(f"tiles: {memory_limit_message('max_memory', limit, used, needed)}")
    longest, axes = lengths[fitting - 1], zip(sizes, strides, strict=True)
    return measure_tiling(tiler, shapes, [balance_length(size, longest, stride) for size, stride in axes])


def least_bytes(tiler: Tiler, shapes: Mapping[str, Shape], buffer_bytes: BufferBytes | None = None) -> int:
    """Bytes that a run in the smallest tiles takes in addition to the process; arguments as for `fit_tiling`."""
    strides, buffers = tiler.strides(shapes), buffer_bytes or tiler.output_bytes
    return min(
        peak_bytes(measure_tiling(tiler, shapes, [size] * len(strides)), buffers) for size in (max(strides), MAX_SIZE)
    )


def memory_limit_message(limit: str, max_memory: int, used: int, needed: int) -> str:
    """The sentence about a memory limit in bytes, by its name, that a run would exceed: it takes `needed` bytes in
    addition to those that are `used` already.

    >>> memory_limit_message("--max-memory", 700 << 20, 600 << 20, 569 << 20)
    '--max-memory 700MiB is too small: this run needs at least about 1.2 GiB (569 MiB more than is used already).'
    """
    least = used + needed
    text = f"{ceil(least / 2**20 / 10) * 10} MiB" if least < 2**30 else f"{ceil(least / 2**30 * 10) / 10} GiB"
    return (
        f"{limit} {format_bytes(max_memory)} is too small: this run needs at least about {text} "
        f"({needed / 2**20:.0f} MiB more than is used already)."
    )


def measure_tiling(tiler: Tiler, shapes: Mapping[str, Shape], tile: Sequence[int]) -> TilingFit:
    """The tiling of tiles of one shape, with its forecast."""
    tiling = tiler.tiling(shapes, tile, is_even=True)
    return TilingFit(tiling, tiler.run_bytes(shapes, tiling.max_input_shapes()), tuple(tile))


def peak_bytes(fit: TilingFit, buffers: BufferBytes) -> int:
    """Bytes that a run in these tiles takes at most in addition to the process, with a margin."""
    return int(fit.bytes * (1 + FORECAST_MARGIN)) + buffers(fit.tiling)
