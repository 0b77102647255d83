"""Weights that are unpool's own, and what is derived from them.

Whether somebody else can write to an array can't be told from the array: an older view, another process behind a memory
map, or whoever lent the memory may. So what is derived from weights is kept for copies that only unpool knows of.
"""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

KEPT_SHAPES = 4
"""So many input shapes find what was derived for them again; the oldest one goes first."""


class Packings:
    """What was derived from one array, by what it is for. Any thread may ask at any time."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._known)

    def find(self, key: str, derive: Callable[[], Any]) -> Any:
        """What was derived for `key`, by `derive` where it is not there; threads that ask together may all derive."""
        found = self._known.get(key, self)
        if found is self:
            found = derive()
            with self._lock:
                while len(self._known) >= KEPT_SHAPES:
                    del self._known[next(iter(self._known))]
                self._known[key] = found
        return found


class OwnWeights(np.ndarray[Any, Any]):
    """A read-only copy with its packings; views of it, and copies, have none."""

    packings: Packings | None = None


def own_weights(w: np.ndarray[Any, Any]) -> OwnWeights:
    """A copy of an array that nobody else can write to."""
    copy = np.array(w, order="C")
    copy.flags.writeable = False
    own = copy.view(OwnWeights)
    own.packings = Packings()
    return own


def packings_of(w: np.ndarray[Any, Any]) -> Packings | None:
    """What is kept with an array; None for all that are not unpool's own."""
    return w.packings if type(w) is OwnWeights else None
