"""Runs tiles: one tile is cut out, run, and what is kept of its results is put in its place."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unpool.errors import UnpoolError, UnsupportedError
from unpool.indices import from_part
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.tiles.fitting import fitted
from unpool.runtime.tiles.tiler import Tiler
from unpool.runtime.tiles.tiling import Tile, Tiling

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

Arrays = dict[str, np.ndarray[Any, Any]]
Steps = Callable[[Iterable[Tile]], Iterable[Tile]]


def run(
    session: "InferenceSession",
    feed: Mapping[str, Any],
    tile: Sequence[int] | str = "auto",
    *,
    max_memory: int | None = None,
    outputs: Iterable[str] | None = None,
    inputs: Iterable[str] | None = None,
    layout: str = "NCHW",
    steps: Steps = iter,
) -> Arrays:
    """The outputs of a model, computed tile by tile: the results of `session.run`, in less memory.

    Convolutions, pools, unpools, transposed convolutions and whatever treats every element alike can be tiled exactly:
    a tile reads as much around it as its results depend on. Results are equal bit for bit, except where sums of floats
    are formed in another order for another size, and in the last bits of Exp, Tanh and others that onnxruntime rounds
    otherwise at the end of an array; docs/tiling.md lists them.

    Args:
        session: that runs the tiles.
        feed: every input by name.
        tile: elements of the first input of which one tile gives the results, by spatial axis, rounded down to a
            multiple of the total stride; "auto" takes the largest that fits into memory.
        max_memory: bytes that the process may have in all, for "auto"; by default half of what is free comes on top.
        outputs: names of the outputs that are wanted; by default all.
        inputs: names of the inputs to cut; by default all of the highest rank.
        layout: "NCHW" where inputs have channels before the spatial axes, of which there may be one or more; or "NHWC".
        steps: goes through the tiles, and may show how far it is.

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
        return run_tiling(session, fitted(tiler, shapes, max_memory).tiling, feed, steps)
    return run_tiling(session, tiler.tiling(shapes, tile), feed, steps)


def run_tile(session: "InferenceSession", tiling: Tiling, tile: Tile, feed: Mapping[str, Any]) -> Arrays:
    """What one tile gives of every output.

    Args:
        session: whose model the tiling was made for.
        tiling: of the whole image.
        tile: one of its tiles.
        feed: every input; of those that are cut, anything that gives an array for `feed[name][slices]`: an array, a
            memory map, a Zarr array.

    Returns:
        by output, the elements for `tile.filled`; also those that are the same for every tile. Indices count in the
        whole image.
    """
    return compute_tile(session, tiling, tile, read_tile(tile, feed))


def read_tile(tile: Tile, feed: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a tile gets of every input; those that are cut are read, and are arrays."""
    read = {name: np.ascontiguousarray(feed[name][slices]) for name, slices in tile.inputs.items()}
    return {**feed, **read}


def compute_tile(
    session: "InferenceSession",
    tiling: Tiling,
    tile: Tile,
    read: Mapping[str, Any],
    run_options: onnxruntime.RunOptions | None = None,
) -> Arrays:
    """As `run_tile`, from what `read_tile` gave; `run_options` are those of `session.run`, and can end it."""
    names = [*tile.kept, *tiling.fixed]
    if not names:  # outputs that end before the image may leave nothing to its last corner
        return {}
    made = dict(zip(names, session.run(names, read, run_options), strict=True))
    return {name: _kept(name, tile, array) if name in tile.kept else array for name, array in made.items()}


def put(outputs: Mapping[str, Any], tile: Tile, made: Mapping[str, Any]) -> None:
    """Write what a tile gives into the outputs of the image: arrays, or anything that takes `out[slices] = array`."""
    for name, slices in tile.filled.items():
        outputs[name][slices] = made[name]


def run_tiling(session: "InferenceSession", tiling: Tiling, feed: Mapping[str, Any], steps: Steps = iter) -> Arrays:
    """The outputs for the whole image, tile by tile.

    Args:
        session: whose model the tiling was made for.
        tiling: of the whole image.
        feed: every input.
        steps: goes through the tiles, and may show how far it is.

    Returns:
        the outputs by name, equal to those of `session.run` on the whole image, as `run` says.
    """
    outputs: Arrays = {}
    for tile in steps(tiling):
        made = run_tile(session, tiling, tile, feed)
        for name in tiling.outputs:
            if name in made and name not in outputs:
                outputs[name] = np.empty(tiling.shape(name), made[name].dtype)
        put(outputs, tile, made)
        outputs |= {name: made[name] for name in tiling.fixed}
    return outputs


def _kept(name: str, tile: Tile, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The part of an output for a tile that belongs to the image."""
    if array.shape != tile.made[name]:
        raise UnsupportedError(
            f"tiles: output {name!r} of tile {tile.number}: expected the shape {list(tile.made[name])}, as the graph "
            f"says, got {list(array.shape)}. Run the image whole."
        )
    part = array[tile.kept[name]]
    counting = tile.counting.get(name)
    return part if counting is None else from_part(part, counting.part, counting.whole, counting.shift)
