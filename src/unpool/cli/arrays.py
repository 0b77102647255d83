"""Arrays of numbers in .npy and .npz files -> arrays that an input of the model takes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unpool.cli.model import BFLOAT16, Slot
from unpool.display import format_shape
from unpool.errors import UnpoolError


def fitted(array: NDArray[Any], slot: Slot, layout: str, where: str) -> tuple[NDArray[Any], list[str]]:
    """The array in the type and rank of an input, and a note where these were not its own.

    A wider type is taken where it holds every number, and axes of one element are added: the batch, or the batch and
    the channels. What would be guessed is left as it is.

    >>> slot = Slot("x", np.dtype(np.float32), (None, 1, None, None, None))
    >>> array, notes = fitted(np.zeros((4, 5, 6), np.int16), slot, "nchw", "vol.npy")
    >>> array.shape, str(array.dtype), notes
    ((1, 1, 4, 5, 6), 'float32', ['4x5x6 int16 goes in as 1x1x4x5x6 float32'])
    """
    given = array.view(slot.dtype) if array.dtype == np.dtype("V2") and slot.dtype == BFLOAT16 else array
    made = _of_type(of_rank(given, slot, layout), slot, where)
    is_same = made.shape == given.shape and made.dtype == given.dtype
    told = f"{format_shape(given.shape)} {given.dtype} goes in as {format_shape(made.shape)} {made.dtype}"
    return made, [] if is_same else [told]


def of_rank(array: NDArray[Any], slot: Slot, layout: str) -> NDArray[Any]:
    """The array with axes of one element added, where an input has more axes; nothing is copied."""
    if slot.shape is None or array.ndim >= len(slot.shape):
        return array
    ways = [array[None]]
    if array.ndim == len(slot.shape) - 2 and slot.channels(layout) in (1, None):
        ways = [array[None, None] if layout == "nchw" else array[None, ..., None]]
    return next((one for one in ways if slot.fits(one.shape)), array)


def _of_type(array: NDArray[Any], slot: Slot, where: str) -> NDArray[Any]:
    if array.dtype == slot.dtype or array.dtype.kind not in "biuf" or slot.dtype.kind == "b":
        return array
    with np.errstate(invalid="ignore", over="ignore"):
        cast = array.astype(slot.dtype)
        is_exact = np.array_equal(cast.astype(array.dtype), array, equal_nan=array.dtype.kind == "f")
    if is_exact:
        return cast
    raise UnpoolError(
        f"{where}: input {slot.name!r} takes {slot.dtype}, got {array.dtype} from {array.min():g} to {array.max():g}, "
        "of which it cannot hold every number exactly. Convert it first."
    )
