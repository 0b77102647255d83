"""Sections 1 and 2: which rules a MaxUnpool case exercises."""

from collections.abc import Iterator

import numpy as np

from tests.cases.record import Case
from tests.cases.rules_max_pool import bad_lists, bad_row
from tests.oracle.max_unpool import inferred_shape, placed, scatter, unpool_axes
from tests.oracle.rows import FLOATS, INT64, Refused, to_channels_first

Found = Iterator[tuple[str, bool]]
Shape = tuple[int, ...]


def max_unpool_rules(case: Case, answer: tuple[np.ndarray, ...] | None) -> Found:
    """Pairs of a rule and whether it decided something."""
    yield from refused_rules(case) if answer is None else accepted_rules(case, answer[0])


def is_malformed(output_shape: np.ndarray | None, x: np.ndarray) -> bool:
    """Whether output_shape breaks 1.5."""
    if output_shape is None:
        return False
    if output_shape.dtype != INT64 or output_shape.shape != (x.ndim,):
        return True
    return bool(output_shape.min() < 0) or tuple(output_shape[:2]) != x.shape[:2]


def inferred_of(case: Case, x: np.ndarray) -> Shape:
    """The shape without output_shape."""
    given = case.attributes
    axes = unpool_axes(x.ndim - 2, given["kernel_shape"], given.get("strides"), given.get("pads"))
    return inferred_shape(x.shape, axes)


def refused_rules(case: Case) -> Found:
    """Sections 1 and 2 where they refuse."""
    x, indices, output_shape = case.inputs
    if x.ndim < 3:
        yield "2.6", True
        return
    x = to_channels_first(x, case.layout)
    lists = bad_lists(case.attributes, x.ndim - 2)
    malformed = is_malformed(output_shape, x)
    yield "1.5", malformed
    yield "2.4", indices.shape != x.shape
    yield "2.5", lists
    if lists or malformed or indices.shape != x.shape or indices.dtype != INT64 or bad_row(case):
        return
    inferred = inferred_of(case, x)
    negative = output_shape is None and min(inferred) < 0
    yield "1.3", negative
    if negative:
        return
    shape = inferred if output_shape is None else tuple(int(size) for size in output_shape)
    smaller = case.compat == "ort" and np.prod(shape) < np.prod(inferred)
    yield "1.4", bool(smaller)
    counted = inferred if case.index_space == "inferred" else shape
    yield "2.1", not smaller and not is_inside(indices, counted)


def is_inside(indices: np.ndarray, shape: Shape) -> bool:
    """Whether every index lies in a tensor of this shape."""
    return bool(((indices >= 0) & (indices < np.prod(shape))).all())


def accepted_rules(case: Case, y: np.ndarray) -> Found:
    """Sections 1 and 2 where they compute."""
    x, indices, output_shape = case.inputs
    x = to_channels_first(x, case.layout)
    y_shape = to_channels_first(y, case.layout).shape
    inferred = inferred_of(case, x)
    given = case.attributes
    kernel = given["kernel_shape"]
    wanted = output_shape is not None
    counts = wanted and space_decides(x, indices, y_shape, inferred)
    bits = np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")
    yield "1.1", counts
    yield "1.2", wanted and any(given.get("pads", ())) and x.size > 0
    yield "1.3", not wanted and (given.get("strides") != kernel or any(given.get("pads", ())))
    yield "1.4", wanted and any(size < inner for size, inner in zip(y_shape, inferred, strict=True))
    yield "1.5", wanted and 0 in y_shape[2:]
    yield "2.2", has_rivals(bits, indices)
    yield "2.3", not counts and leaves_plane(x, indices, y_shape)
    yield "2.6", x.ndim > 5 or 0 in x.shape or keeps_odd_bits(x)
    yield "2.7", case.opset is not None and x.dtype in FLOATS


def space_decides(x: np.ndarray, indices: np.ndarray, shape: Shape, inferred: Shape) -> bool:
    """Whether counting in the requested or in the inferred shape makes a difference."""
    if shape == inferred or not x.size or any(size < inner for size, inner in zip(shape, inferred, strict=True)):
        return False
    try:
        there = scatter(x, indices, shape)
        here = placed(scatter(x, indices, inferred), shape)
    except Refused:
        return True
    return there.tobytes() != here.tobytes()


def has_rivals(bits: np.ndarray, indices: np.ndarray) -> bool:
    """Whether one index is named by two elements of different bits."""
    first: dict[int, int] = {}
    pairs = zip(indices.reshape(-1).tolist(), bits.reshape(-1).tolist(), strict=True)
    return any(first.setdefault(index, value) != value for index, value in pairs)


def leaves_plane(x: np.ndarray, indices: np.ndarray, shape: Shape) -> bool:
    """Whether an index points into another (n, c) plane than its element's."""
    cells = int(np.prod(shape[2:]))
    own = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * (x.ndim - 2))
    return cells > 0 and bool((indices // cells != own).any())


def keeps_odd_bits(x: np.ndarray) -> bool:
    """Whether x holds NaN or a negative zero."""
    values = x.astype(np.float64)
    return bool(np.isnan(values).any() or ((values == 0) & np.signbit(values)).any())
