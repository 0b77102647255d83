"""Functions of compiled code that are chosen by the types of their arguments, while what calls them is compiled."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from numba.extending import overload

PART = {"error_model": "numpy", "no_cfunc_wrapper": True}
"""Options of Numba for what only compiled code calls: a wrapper for C would be compiled and never used."""


def by_type(*, inline: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a function that gets the Numba types of its arguments and returns what is compiled for them.

    Compiled code calls it by its name, with values. Literal arguments are literal types. Outside compiled code it
    cannot be called.

        @by_type()
        def largest_of(x):
            limit = types.maxval(x)
            return lambda x: limit

    Args:
        inline: whether it becomes part of its caller; LLVM decides otherwise. Numba's own inlining would give the same
            instructions, and take twice the time.
    """
    options: Any = {**PART, **({"forceinline": True} if inline else {})}

    def decorate(choose: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(choose)
        def name(*_: Any) -> Any:
            raise TypeError(f"{choose.__name__}: only compiled code can call it")

        overload(name, prefer_literal=True, jit_options=options)(choose)
        return name

    return decorate
