"""Feature maps before and after a pooling or an unpooling, as pictures, with the positions of the maxima."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from unpool import functional
from unpool.dtypes import AnyArray
from unpool.extras import require
from unpool.geometry import Axis, Window
from unpool.graph.nodes import attributes, domain, node_name
from unpool.graph.shape_inference import PreparedGraph
from unpool.graph.spec import spec_of
from unpool.operators import max_pool
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.operators.resolve import Spec

POOLS = ("MaxPool", "MaxUnpool")

MAX_CLOSE_UP = 20  # elements along a side of a close-up
MAX_PIXELS = 160  # along the longer side of a picture of a whole plane; a wider plane is averaged down
CELL = 14  # pixels along the side of an element in a close-up
COLOURS = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
"""From the smallest to the largest element: five colours of Matplotlib's viridis, blended in between."""

SHADES, MARK, RIM = 64, (255, 87, 34), (255, 255, 255)


@dataclass(frozen=True)
class Area:
    """A part of a plane, rows first: its first element, and its number of elements along each axis."""

    begin: tuple[int, ...]
    size: tuple[int, ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        """The index of the part in the plane."""
        return tuple(slice(start, start + count) for start, count in zip(self.begin, self.size, strict=True))


@dataclass(frozen=True)
class FeatureMap:
    """One plane of a value, its extreme finite elements, and a close-up; `mark_count` is None for the small side."""

    name: str
    shape: tuple[int, ...]
    low: float
    high: float
    area: Area
    plane_uri: str
    close_up_uri: str
    mark_count: int | None


@dataclass(frozen=True)
class MapPair:
    """The input and output of a MaxPool or MaxUnpool, in the channel that varies most and one slice of a volume."""

    node: str
    operator: str
    channel: int
    depth: tuple[int, ...]
    before: FeatureMap
    after: FeatureMap


def map_pair(node: onnx.NodeProto, prepared: PreparedGraph, values: Mapping[str, AnyArray]) -> MapPair | None:
    """The feature maps of a node by the values around it; None for other operators, and for arrays without planes."""
    x, y = values.get(node.input[0]), values.get(node.output[0])
    is_drawn = node.op_type in POOLS and domain(node) == ""
    if not is_drawn or x is None or y is None or x.ndim < 3 or not (x.size and y.size):
        return None
    is_pool = node.op_type == "MaxPool"
    large, small = (x, y) if is_pool else (y, x)
    spec = spec_of(node, prepared.graph.opsets, prepared.semantics_of(node))
    channel = int(np.argmax(np.nan_to_num(small[0].astype(np.float64)).reshape(small.shape[1], -1).std(axis=1)))
    if is_pool:
        marks = _argmax_marks(node, x, channel, prepared.semantics.compat)
    else:
        (written,) = functional.run(spec, [np.ones_like(x), *map(values.get, node.input[1:])])
        marks = np.asarray(written)[0, channel] != 0
    depth = tuple(size // 2 for size in large.shape[2:-2])
    axes = _axes(spec, large.shape[2:], small.shape[2:])
    small_depth = tuple(_window_at(axis, position) for axis, position in zip(axes, depth, strict=False))
    large_plane, small_plane = _plane(large[0, channel], depth), _plane(small[0, channel], small_depth)
    area, small_area = _close_up_areas(large_plane, axes[-2:])
    names = (node.input[0], node.output[0]) if is_pool else (node.output[0], node.input[0])
    maps = (
        _feature_map(names[0], large.shape, large_plane, area, _plane(marks, depth)),
        _feature_map(names[1], small.shape, small_plane, small_area, None),
    )
    return MapPair(node_name(node), node.op_type, channel, depth, *(maps if is_pool else maps[::-1]))


def _feature_map(
    name: str, shape: tuple[int, ...], plane: AnyArray, area: Area, marks: NDArray[np.bool_] | None
) -> FeatureMap:
    count = None if marks is None else int(marks.sum())
    pictures = _plane_uri(plane, area), _close_up_uri(plane, area, marks)
    return FeatureMap(name, shape, *_range(plane), area, *pictures, count)


def _argmax_marks(node: onnx.NodeProto, x: AnyArray, channel: int, compat: str) -> NDArray[np.bool_]:
    options = {name: value for name, value in attributes(node).items() if name != "storage_order"}
    plane = np.ascontiguousarray(x[:1, channel : channel + 1])
    _, indices = functional.max_pool(plane, **options, return_indices=True, compat=compat)
    marks = np.zeros(plane.size, bool)
    marks[indices[indices >= 0]] = True
    return marks.reshape(plane.shape[2:])


def _plane(block: AnyArray, depth: tuple[int, ...]) -> AnyArray:
    """Two axes of a block with one or more; a single axis becomes a row."""
    return block[None] if block.ndim == 1 else block[depth]


def _axes(spec: Spec, large: tuple[int, ...], small: tuple[int, ...]) -> list[Axis]:
    """The spatial axes of a pool or an unpooling, two or more: the only row of a single axis is one of its own."""
    assert isinstance(spec, MaxPoolSpec | MaxUnpoolSpec)
    if isinstance(spec, MaxPoolSpec):
        axes = [max_pool.axis(spec, number, size) for number, size in enumerate(large)]
    else:
        pairs = zip(spec.windows, spec.pads, large, small, strict=True)
        axes = [Axis(more, less, window, begin) for window, (begin, _), more, less in pairs]
    return axes if len(axes) > 1 else [Axis(1, 1, Window(1)), *axes]


def _window_at(axis: Axis, position: int) -> int:
    """The last window that begins at a large position or before it: small * stride - begin = large."""
    return int(np.clip((position + axis.begin) // axis.window.stride, 0, axis.small - 1))


def _close_up_areas(large: AnyArray, axes: Sequence[Axis]) -> tuple[Area, Area]:
    """The part of the large plane around its largest element, from the begin of a window on, and the windows in it."""
    largest = np.unravel_index(int(np.argmax(np.nan_to_num(large.astype(np.float64)))), large.shape)
    begins, sizes, firsts, counts = [], [], [], []
    for position, axis in zip(largest, axes, strict=True):
        most = min(MAX_CLOSE_UP, axis.large)
        first = _window_at(axis, int(np.clip(position - most // 2, 0, axis.large - most)))
        begin = max(0, first * axis.window.stride - axis.begin)
        size = min(most, axis.large - begin)
        begins.append(begin)
        sizes.append(size)
        firsts.append(first)
        counts.append(_window_at(axis, begin + size - 1) - first + 1)
    return Area(tuple(begins), tuple(sizes)), Area(tuple(firsts), tuple(counts))


def _plane_uri(plane: AnyArray, area: Area) -> str:
    """A plane as a data URI, some pixels per element or, of a large plane, one for several; `area` is framed."""
    from PIL import Image, ImageDraw

    scale = MAX_PIXELS / max(plane.shape)
    height, width = (max(1, round(length * scale)) for length in plane.shape)
    resampling = Image.Resampling.BOX if scale < 1 else Image.Resampling.NEAREST
    picture = _image(_shades(plane)).convert("RGB").resize((width, height), resampling)
    if area.size != plane.shape:
        (top, left), (rows, columns) = area.begin, area.size
        frame = [left * scale, top * scale, (left + columns) * scale, (top + rows) * scale]
        ImageDraw.Draw(picture).rectangle(frame, outline=MARK)
    return _data_uri(picture.quantize(2 * SHADES))


def _close_up_uri(plane: AnyArray, area: Area, marks: NDArray[np.bool_] | None) -> str:
    """A part of a plane as a data URI, each element a square; those in `marks`, a plane too, get a dot."""
    from PIL import ImageDraw

    shades = _shades(plane)[area.slices]
    picture = _image(np.repeat(np.repeat(shades, CELL, axis=0), CELL, axis=1))
    draw = ImageDraw.Draw(picture)
    for row, column in np.argwhere(marks[area.slices]) if marks is not None else ():
        left, top = int(column) * CELL + CELL // 4, int(row) * CELL + CELL // 4
        draw.ellipse([left, top, left + CELL // 2, top + CELL // 2], fill=SHADES, outline=SHADES + 1)
    return _data_uri(picture)


def _range(plane: AnyArray) -> tuple[float, float]:
    """The smallest and the largest finite element; 0 where there is none."""
    values = plane.astype(np.float64)
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def _shades(plane: AnyArray) -> NDArray[np.uint8]:
    """The number of a colour for every element, from the smallest finite one to the largest."""
    low, high = _range(plane)
    share = np.nan_to_num((plane.astype(np.float64) - low) / (high - low or 1.0), nan=0.0, posinf=1.0, neginf=0.0)
    return np.rint(np.clip(share, 0, 1) * (SHADES - 1)).astype(np.uint8)


def _image(shades: NDArray[np.uint8]) -> Any:
    require("the feature maps of a report", "run", "PIL")
    from PIL import Image

    stops = np.linspace(0, len(COLOURS) - 1, SHADES)
    palette = np.rint([np.interp(stops, range(len(COLOURS)), part) for part in np.array(COLOURS).T]).T
    picture = Image.fromarray(np.ascontiguousarray(shades), mode="P")
    picture.putpalette([int(part) for colour in (*palette, MARK, RIM) for part in colour])
    return picture


def _data_uri(picture: Any) -> str:
    stream = BytesIO()
    picture.save(stream, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
