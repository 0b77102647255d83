"""Turns whatever text a caller feeds into the arrays of str that the nodes expect."""

import numpy as np

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError


def strings(array: AnyArray, name: str) -> AnyArray:
    r"""The array as one of str; bytes are read as UTF-8, which is how ONNX stores strings.

    Args:
        array: of NumPy's kinds of text, of bytes of one size (`void`), or of objects.
        name: how errors call it.

    Raises:
        UnpoolError: bytes that are no UTF-8, or an element that is no text.

    >>> strings(np.array([b"gr\xc3\xbcn", "rot"], object), "x").tolist()
    ['grün', 'rot']
    """
    flat = [_text(one, name) for one in array.astype(object, copy=False).reshape(-1)]
    made = np.empty(len(flat), object)
    made[:] = flat
    return made.reshape(array.shape)


def _text(one: object, name: str) -> str:
    try:
        if isinstance(one, (bytes, np.void)):
            return (one if isinstance(one, bytes) else one.tobytes()).decode("utf-8")
        if isinstance(one, str):
            one.encode("utf-8")
            return one
    except UnicodeError as error:
        raise UnpoolError(
            f"{name}: expected text that UTF-8 can hold, got {one!r}. Leave out lone surrogates."
        ) from error
    raise UnpoolError(f"{name}: expected strings, or bytes in UTF-8, got {type(one).__name__} {one!r}. Use str(...).")
