"""Runs tiles in memory: reads a tile, computes it, and writes its results into the outputs of the image."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unpool.errors import UnpoolError, UnsupportedError
from unpool.indices import from_part
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.tiles.fitting import fit_tiling
from unpool.runtime.tiles.tiler import Tiler
from unpool.runtime.tiles.tiling import Tile, Tiling

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

Arrays = dict[str, np.ndarray[Any, Any]]
Progress = Callable[[Iterable[Tile]], Iterable[Tile]]


def run(
    session: "InferenceSession",
    feed: Mapping[str, Any],
    tile: Sequence[int] | str = "auto",
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
    at the end of an array; docs/tiling.md lists them.

    Args:
        session: that runs the tiles.
        feed: every input by name.
        tile: elements of the first input for which one tile gives the results, by spatial axis, rounded down to a
            multiple of the total stride; "auto" takes the largest that fits into memory.
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
            raise UnpoolError(
                f'tile: expected "auto" or a size per spatial axis, got {tile!r}. Pass such a list as [512, 512].'
            )
        return run_tiling(session, fit_tiling(tiler, shapes, max_memory).tiling, feed, progress)
    return run_tiling(session, tiler.tiling(shapes, tile), feed, progress)


def run_tile(session: "InferenceSession", tiling: Tiling, tile: Tile, feed: Mapping[str, Any]) -> Arrays:
    """The results of one tile.

    Args:
        session: whose model the tiling was made for.
        tiling: of the whole image.
        tile: one of its tiles.
        feed: every input; of those that are cut, anything that gives an array for `feed[name][slices]`: an array, a
            memory map, a Zarr array.

    Returns:
        by output, the elements for `tile.targets`; also the outputs that are equal for every tile. Indices are those
        in the whole image.
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
    results = zip(names, session.run(names, read, run_options), strict=True)
    return {name: _crop(name, tile, array) if name in tile.crops else array for name, array in results}


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


def _crop(name: str, tile: Tile, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The part of a tile's output that belongs to the image; indices become those in the image."""
    if array.shape != tile.output_shapes[name]:
        raise UnsupportedError(
            f"tiles: output {name!r} of tile {tile.number}: expected the shape {list(tile.output_shapes[name])} by "
            f"the graph, got {list(array.shape)}. Run the image whole."
        )
    part = array[tile.crops[name]]
    shift = tile.index_shifts.get(name)
    return part if shift is None else from_part(part, shift.part, shift.whole, shift.shift)
