"""Compile-time choices of kernels, functions by type and static arguments, and records of run-time arguments."""

from collections.abc import Callable
from functools import cache, partial, wraps
from typing import Any, NamedTuple, get_type_hints

import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import models, overload, register_model, typeof_impl

JIT_OPTIONS = {"error_model": "numpy", "no_cfunc_wrapper": True}  # of functions that only compiled code calls
_FIELD_TYPES = {int: np.int64, bool: np.bool_}


def overload_by_type(*, inline: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a function that takes the Numba types of its arguments and returns the function to compile for them.

    Compiled code calls it by its name, with values. Literal arguments are literal types. Outside compiled code it
    cannot be called.

        @overload_by_type()
        def largest_of(x):
            limit = types.maxval(x)
            return lambda x: limit

    With `inline` it becomes part of its caller, otherwise LLVM decides. Numba's own inlining would give the same
    instructions, and take twice the time.
    """
    options: Any = {**JIT_OPTIONS, **({"forceinline": True} if inline else {})}

    def decorate(choose: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(choose)
        def name(*_: Any) -> Any:
            raise TypeError(f"{choose.__name__}: only compiled code can call it")

        overload(name, prefer_literal=True, jit_options=options)(choose)
        return name

    return decorate


def record(params: NamedTuple, **field_types: Any) -> npt.NDArray[np.void]:
    """An array whose only element has the fields of a named tuple: a kernel takes it as one argument.

    Fields are int, which become int64, or bool, or have a type in `field_types`. Numba passes an array to a kernel
    faster than a tuple, or a NumPy scalar.

    >>> class Size(NamedTuple):
    ...     width: int
    ...     is_even: bool
    >>> record(Size(4, True))["width"].tolist()
    [4]
    """
    return np.array([tuple(params)], _record_type(type(params), *field_types.items()))


@cache
def _record_type(named: type[Any], *field_types: tuple[str, Any]) -> np.dtype[np.void]:
    special, hints = dict(field_types), get_type_hints(named)
    return np.dtype([(name, special.get(name) or _FIELD_TYPES[hints[name]]) for name in named._fields], align=True)


class StaticArgs(types.Dummy):
    """Compile-time constants by name, such as `static.lanes`, which `overload_by_type` functions read.

    Numba tells them apart by their values, equal in every process, so kernels that hold them are found in the cache.
    """

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)
        self.values = values
        super().__init__(name=f"StaticArgs({', '.join(f'{name}={value}' for name, value in values.items())})")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self.name}: has no {name}")

    def replace(self, **others: Any) -> "StaticArgs":
        """A copy with other values."""
        return StaticArgs(**{**self.values, **others})

    def drop(self, *names: str) -> "StaticArgs":
        """A copy without some values: a function that does not need them is compiled once for all of them."""
        return StaticArgs(**{name: value for name, value in self.values.items() if name not in names})

    def __reduce__(self) -> tuple[Any, ...]:
        """By values: Numba's own pickle holds a number that depends on what the process made before."""
        return partial(StaticArgs, **self.values), ()


register_model(StaticArgs)(models.OpaqueModel)
typeof_impl.register(StaticArgs)(lambda value, _: value)
