"""Random arrays for the inputs of a model, for timing and for comparison with another model."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError, UnsupportedError
from unpool.graph.dynamic_dims import MULTIPLE
from unpool.graph.shapes import check_size_names, dtype, parse_type

SEED = 7
MAX_BATCH = 2  # maximum size of the first axis of an input, where it is dynamic


def random_feed(
    inputs: Sequence[Any], sizes: Mapping[str, int], *, open_size: int | None = None, seed: int = SEED
) -> dict[str, AnyArray]:
    """A random array for every input, with `sizes` of dimensions by name; an `open_size` of None refuses others."""
    check_size_names(sizes, [size for info in inputs for size in info.shape])
    for info in inputs if open_size is None else ():
        _require_sizes(info, sizes)
    rng = np.random.default_rng(seed)
    shapes = feed_shapes(inputs, sizes, open_size or 1)
    return {info.name: random_array(info, shapes[info.name], rng) for info in inputs}


def feed_shapes(inputs: Sequence[Any], sizes: Mapping[str, int], open_size: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays that `random_feed` makes, by the name of the input."""
    shapes: dict[str, tuple[int, ...]] = {}
    for info in inputs:
        shape = []
        for axis, size in enumerate(info.shape):
            multiple = MULTIPLE.fullmatch(size) if isinstance(size, str) else None
            factor = int(multiple[1]) if multiple else 1
            rounded = -(-(open_size if axis else min(open_size, MAX_BATCH)) // factor) * factor
            shape.append(size if isinstance(size, int) else sizes.get(size or "", rounded))
        shapes[info.name] = tuple(shape)
    return shapes


def random_array(info: Any, shape: Sequence[int], rng: np.random.Generator) -> AnyArray:
    """Normal numbers for floats, 0 to 255 for uint8, and 0 or 1 for other integers and booleans."""
    kind = dtype(parse_type(info.type))
    if kind is None or kind == np.dtype(object):
        raise UnsupportedError(
            f"input {info.name!r}: random values need a tensor of numbers, got {info.type}. Give the input itself."
        )
    if kind.kind in "iub":
        return rng.integers(0, 256 if kind == np.uint8 else 2, shape).astype(kind)
    return rng.standard_normal(shape).astype(kind)


def _require_sizes(info: Any, sizes: Mapping[str, int]) -> None:
    """Refuse dynamic dimensions without a size; the error has them as options of the command and as an argument."""
    missing = [size for size in info.shape if not isinstance(size, int) and size not in sizes]
    named = [size for size in missing if size is not None]
    if len(named) < len(missing):
        raise UnpoolError(
            f"input {info.name!r}: expected sizes with names or numbers, got one without. Give the input itself."
        )
    if named:
        options = " ".join(f"--size {name}={64 if n else 1}" for n, name in enumerate(info.shape) if name in named)
        raise UnpoolError(
            f"input {info.name!r}: expected sizes for {', '.join(named)}, got none. Give the input itself, or "
            f"numbers such as {options} (sizes={{{named[-1]!r}: 64, ...}})."
        )
