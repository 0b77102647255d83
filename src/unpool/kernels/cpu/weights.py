"""Weights that only unpool can write to, and their packings for kernels.

An array does not show whether somebody else can write to its memory. So unpool keeps packings only of copies that it
made itself.
"""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

MAX_PACKINGS = 4  # maximum number of packings of one array; the oldest is dropped first


class Packings:
    """Packings of one array, by key. All methods are safe in threads."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._known)

    def find(self, key: str, derive: Callable[[], Any]) -> Any:
        """The packing of a key; `derive` makes a missing one, in several threads if they ask at the same time."""
        packing = self._known.get(key, self)
        if packing is self:
            packing = derive()
            with self._lock:
                while len(self._known) >= MAX_PACKINGS:
                    del self._known[next(iter(self._known))]
                self._known[key] = packing
        return packing


class OwnWeights(np.ndarray[Any, Any]):
    """A read-only copy with its packings; views of it, and copies, have none."""

    packings: Packings | None = None


def own_weights(w: np.ndarray[Any, Any]) -> OwnWeights:
    """A read-only copy of an array that only unpool can write to."""
    copy = np.array(w, order="C")
    copy.flags.writeable = False
    return as_own_weights(copy)


def as_own_weights(w: np.ndarray[Any, Any]) -> OwnWeights:
    """A read-only array in C order that only unpool can write to, with packings."""
    own = w.view(OwnWeights)
    own.packings = Packings()
    return own


def packings_of(w: np.ndarray[Any, Any]) -> Packings | None:
    """The packings of an array from `own_weights`; None for others."""
    return w.packings if type(w) is OwnWeights else None
