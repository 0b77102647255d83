"""Decorators of kernels, and records of their arguments.

A kernel is compiled serial, without the interpreter lock, when it is first called with arguments of some types, unless
unpool was shipped with its machine code (`libraries.py`). Only compiling imports Numba.
"""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, NamedTuple, get_type_hints

import numpy as np
import numpy.typing as npt

from unpool.kernels.cpu.machine import libraries
from unpool.kernels.cpu.vector.registration import register_all

_FIELD_TYPES = {int: np.int64, bool: np.bool_}


class Kernel:
    """A kernel, whose machine code is found or made for the types of its arguments."""

    def __init__(self, name: str, make_dispatcher: Callable[[], Any], function: Any = None) -> None:
        """`name` and the types of arguments identify machine code; `make_dispatcher` gives the function to Numba."""
        self.name, self.function = name, function
        self._make_dispatcher = make_dispatcher
        self._dispatcher: Any = None
        self._entry_points: dict[str, Callable[..., Any]] = {}

    def __call__(self, *args: Any) -> Any:
        """Compute the jobs, see `entry_point.py`. A `Launch` looks at the types only once."""
        types = libraries.type_names(args)
        if types not in self._entry_points:
            self._entry_points[types] = self.entry_point(args)
        return self._entry_points[types](*args)

    def entry_point(self, args: tuple[Any, ...]) -> Callable[..., Any]:
        """The machine code for arguments of these types, which does not check types again."""
        from_library: Callable[..., Any] | None = libraries.find(self.name, args)
        if from_library is not None:
            return from_library
        from unpool.kernels.cpu.machine import numba_internals

        return numba_internals.entry_point(self.dispatcher, args)

    def c_entry(self, args: tuple[Any, ...]) -> int:
        """The address of the C entry for arguments of these types, see `entry_point.py`."""
        shipped_address = libraries.c_entry(self.name, args)
        if shipped_address is not None:
            return shipped_address
        from unpool.kernels.cpu.machine import numba_internals

        return numba_internals.c_entry(self.dispatcher, args)

    def address(self) -> int:
        """The address of the machine code, as a function of C that takes and returns an int64."""
        shipped_address = libraries.address(self.name)
        if shipped_address is not None:
            return shipped_address
        from unpool.kernels.cpu.machine import numba_internals

        return numba_internals.address(self.dispatcher)

    @property
    def dispatcher(self) -> Any:
        """Numba's object."""
        if self._dispatcher is None:
            from unpool.kernels.cpu.machine.numba_internals import global_compiler_lock

            with global_compiler_lock:
                register_all()
                self._dispatcher = self._dispatcher or self._make_dispatcher()
        return self._dispatcher

    @property
    def _numba_type_(self) -> Any:
        """Kernels may call each other."""
        from numba import typeof

        return typeof(self.dispatcher)


def jit(**options: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Decorates a kernel; `options` are those of `numba.njit`, in addition to those that all kernels share."""

    def decorate(function: Callable[..., Any]) -> Kernel:
        def make_dispatcher() -> Any:
            from numba import njit

            from unpool.kernels.cpu.machine import cache, numba_internals

            shared: Any = {"nogil": True, "error_model": "numpy", "pipeline_class": numba_internals.compiler()}
            dispatcher: Any = njit(**shared, **options)(function)
            numba_cache = cache.cache_of(function)
            if numba_cache is not None:
                numba_internals.set_cache(dispatcher, numba_cache)
            return dispatcher

        return Kernel(f"{function.__module__}.{function.__qualname__}", make_dispatcher, function)

    return decorate


def specialize(make: Callable[..., Kernel]) -> Callable[..., Kernel]:
    """Decorates a function that makes a kernel for compile-time constants, whose `str` tells them apart.

    It runs when the kernel is compiled.
    """

    @cache
    @wraps(make)
    def specialized(*constants: Any) -> Kernel:
        text = f"({', '.join(map(str, constants))})"

        def make_dispatcher() -> Any:
            kernel = make(*constants)
            kernel.function.__qualname__ += text  # its symbols: a cache may load those of two processes together
            return kernel.dispatcher

        return Kernel(f"{make.__module__}.{make.__qualname__}{text}", make_dispatcher)

    return specialized


def record(params: NamedTuple, **field_types: Any) -> npt.NDArray[np.void]:
    """An array whose only element has the fields of a named tuple: a kernel takes it as one argument.

    A field is an int, which becomes an int64, a bool, or a named tuple of such fields. `field_types` gives other types,
    by the name of a field, also in an inner tuple. Numba passes an array to a kernel faster than a tuple or a NumPy
    scalar.

    >>> class Size(NamedTuple):
    ...     width: int
    ...     is_even: bool
    >>> record(Size(4, True))["width"].tolist()
    [4]
    """
    array = np.zeros(1, record_type(type(params), *field_types.items()))  # a plan has the padding, too
    array[0] = tuple(params)
    return array


@cache
def record_type(named: type[Any], *field_types: tuple[str, Any]) -> np.dtype[np.void]:
    """The type of the only element of `record`."""
    special, hints = dict(field_types), get_type_hints(named)

    def type_of(name: str) -> Any:
        kind = hints[name]
        return special.get(name) or (
            record_type(kind, *field_types) if hasattr(kind, "_fields") else _FIELD_TYPES[kind]
        )

    return np.dtype([(name, type_of(name)) for name in named._fields], align=True)
