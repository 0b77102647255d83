"""A Numba type that is an LLVM vector, and the few operations on vectors and memory that the kernels need.

    v = load(address, int32, 16)      sixteen elements, one register
    m = v > best                      a mask: one bit per lane
    best = select(m, v, best)

Addresses are int64 bytes. Lane counts and element types are literals, so every operation is a handful of machine
instructions; a vector wider than the CPU's registers is split by LLVM. Arithmetic and comparisons are the Python
operators; shifts of signed integers are arithmetic.
"""

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

IGNORED, FIRST, LAST = 0, 1, 2
"""The NaN that is a maximum: none, because there is none, or the first or the last of several."""

BITS = {"float16": np.dtype(np.int16), "bfloat16": np.dtype(np.uint16)}
"""The integers that kernels see, by storage type."""


class ActivationParams(NamedTuple):
    """An activation of sums: numbers of their type, or vectors."""

    is_active: bool  # whether there is an activation
    slope: Any  # factor of values below 0
    low: Any  # lower bound
    high: Any  # upper bound


def activation_dtype(dtype: np.dtype[Any]) -> np.dtype[np.void]:
    """The type of an activation as part of a record, for sums of a type."""
    return np.dtype([("is_active", np.bool_), *((name, dtype) for name in ("slope", "low", "high"))], align=True)


_NAMES = {
    "arithmetic": """
        activate_sums any_of convert count_set count_up first_lanes interleave narrow reinterpret select splat
        splat_activation total_of unordered widen widen_mask
    """,
    "memory": """
        address_of clear element_at fence gather gather_at gather_lanes int64_at load load_like load_masked
        load_once load_taps prefetch set_element splat_rows store store_masked store_nontemporal
    """,
    "static_args": "StaticArgs",
    "tiles": """
        tile_add tile_add_product tile_add_to tile_load tile_store tile_store_first tile_zero
    """,
    "type": "Vector",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """An operation; the first one imports Numba."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def import_all() -> None:
    """Import all operations, and Numba."""
    for module in _NAMES:
        import_module(f"{__name__}.{module}")
