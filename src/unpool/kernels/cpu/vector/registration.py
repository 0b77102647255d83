"""Decorators of functions that become part of kernels. They are registered with Numba when it is imported."""

import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

from unpool.kernels.cpu import vector

Function = TypeVar("Function", bound=Callable[..., Any])

JIT_OPTIONS = {"error_model": "numpy", "no_cfunc_wrapper": True}
"""Numba's options for functions that only compiled code calls, which need no wrapper for C."""


_unregistered: list[Callable[[Any], object]] = []
"""What registers functions and operations with Numba, when that is imported."""


class LazyModule(ModuleType):
    """A module of operations of one kernel, which imports Numba; compiled code looks up its names as in any module.

    It is imported as soon as Numba is: kernels of a library need neither. Numba knows an operation only in functions
    whose compilation begins after its import.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        _register(lambda _: import_module(name))

    def __getattr__(self, name: str) -> Any:
        """An operation."""
        return getattr(import_module(self.__name__), name)

    def __reduce__(self) -> tuple[Any, ...]:
        return LazyModule, (self.__name__,)


def jit_inline(function: Function) -> Function:
    """Decorates a function that becomes part of the kernels that call it, and is not cached on its own."""
    _register(lambda numba: numba.extending.register_jitable(**JIT_OPTIONS)(function))
    return function


def compile_as(function: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a function that takes the Numba types of the arguments of `function`, and returns what is compiled.

    Python calls `function` itself.
    """

    def decorate(choose: Callable[..., Any]) -> Callable[..., Any]:
        choose.__annotations__ = {}  # Numba compares them with those of the function that is compiled
        _register(lambda numba: numba.extending.overload(function, jit_options=JIT_OPTIONS)(choose))
        return choose

    return decorate


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

        _register(lambda numba: numba.extending.overload(name, prefer_literal=True, jit_options=options)(choose))
        return name

    return decorate


def _register(registration: Callable[[Any], object]) -> None:
    _unregistered.append(registration)
    if "numba.extending" in sys.modules:
        register_all()


def register_all() -> None:
    """Register all functions with Numba, which must know them before it looks up the first one."""
    import numba.extending

    vector.import_all()
    while _unregistered:
        _unregistered.pop()(numba)
