"""Compile-time constants of kernels and of the functions that are part of them."""

from functools import partial
from typing import Any

from numba import types
from numba.extending import models, register_model, typeof_impl


class StaticArgs(types.Dummy):
    """Compile-time constants by name, such as `static.lanes`.

    Compiled code passes them on like a value, which takes no time; functions that are `overload_by_type` read them.
    Numba tells them apart by their values, and equal values are equal in every process, so kernels that hold them are
    found in the cache.
    """

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)
        self.values = values
        super().__init__(name=f"StaticArgs({', '.join(f'{name}={value}' for name, value in values.items())})")

    def __getattr__(self, name: str) -> Any:
        """Called only for missing names."""
        raise AttributeError(f"{self.name}: has no {name}")

    def replace(self, **others: Any) -> "StaticArgs":
        """A copy with other values."""
        return StaticArgs(**{**self.values, **others})

    def drop(self, *names: str) -> "StaticArgs":
        """A copy without some values, so that a function which does not need them is compiled only once."""
        return StaticArgs(**{name: value for name, value in self.values.items() if name not in names})

    def __reduce__(self) -> tuple[Any, ...]:
        """By values: Numba's own pickle holds a number that depends on what the process made before."""
        return partial(StaticArgs, **self.values), ()


register_model(StaticArgs)(models.OpaqueModel)


@typeof_impl.register(StaticArgs)
def _typeof_static_args(value: StaticArgs, _: Any) -> StaticArgs:
    return value
