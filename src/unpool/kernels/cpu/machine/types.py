"""The types of Numba, `types.float32` and so on, which is imported when one is looked up: shipped kernels need none."""

from typing import Any


def __getattr__(name: str) -> Any:
    from numba import types

    return getattr(types, name)
