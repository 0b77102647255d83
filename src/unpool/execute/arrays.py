"""What all three operators do with arrays before and after a kernel."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from unpool.dtypes import AnyArray, StorageType
from unpool.memory import check as check_memory
from unpool.operators import activation as activations
from unpool.operators.activation import Activation
from unpool.operators.contract import Row
from unpool.operators.tensors import text, value_type

Optional = Sequence[AnyArray | None]

_log = logging.getLogger("unpool")


def present(x: AnyArray | None) -> AnyArray:
    """An input that is known to be there."""
    assert x is not None, "required inputs were checked"
    return x


def checked_type(row: Row, activation: Activation | None, dtype: np.dtype[Any]) -> StorageType:
    """How elements of X are stored and computed.

    Raises:
        UnsupportedError: this version, or the activation, does not have the type.
    """
    storage = value_type(row, "X", dtype)
    activations.check_type(row, activation, storage.name)
    return storage


def contiguous(x: AnyArray, row: Row, dtype: np.dtype[Any] | None = None) -> AnyArray:
    """`x` in row-major order and in the type it is computed in; says so where that takes a copy."""
    flags = x.flags
    if flags.c_contiguous and flags.aligned and (dtype is None or x.dtype == dtype):
        return x
    dtype = dtype or x.dtype
    check_memory(x.shape, dtype, row.label)
    ready = np.require(x, dtype, ["C", "A"])
    if not np.may_share_memory(ready, x):
        _log.info("%s: copied %s %s to row-major %s", row.label, text(x.shape), x.dtype.name, ready.dtype.name)
    return ready


def deliver(work: AnyArray, y: AnyArray, activation: Activation | None, storage: StorageType) -> AnyArray:
    """Activate what a kernel wrote, round it once to the type of `y`, and put it there."""
    if activation is not None:
        from unpool.kernels.cpu.activation import activate

        wide = work.astype(storage.compute, copy=False) if storage.is_float else work
        work = activate(wide, activation.name, activation.params)
    if work is not y:
        with np.errstate(over="ignore"):
            y[...] = work
    return y
