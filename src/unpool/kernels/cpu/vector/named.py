"""What compiled code reads by name: a record of numbers that a call brings, and what is fixed for a whole kernel."""

from functools import cache
from typing import Any, NamedTuple, get_type_hints

import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import models, register_model, typeof_impl

_KINDS = {int: np.int64, bool: np.bool_}


def record(numbers: NamedTuple, **kinds: Any) -> npt.NDArray[np.void]:
    """An array whose only element has the fields of a named tuple: a kernel takes it as one argument.

    An array is handed over to a kernel faster than a tuple, or a NumPy scalar.

    Args:
        numbers: int, which become int64, and bool.
        kinds: NumPy types of other fields, by their names.

    >>> class Size(NamedTuple):
    ...     width: int
    ...     is_even: bool
    >>> record(Size(4, True))["width"].tolist()
    [4]
    """
    return np.array([tuple(numbers)], _record_type(type(numbers), *kinds.items()))


@cache
def _record_type(named: type[Any], *kinds: tuple[str, Any]) -> np.dtype[np.void]:
    given, hints = dict(kinds), get_type_hints(named)
    return np.dtype([(name, given.get(name) or _KINDS[hints[name]]) for name in named._fields], align=True)


class Fixed(types.Dummy):
    """What is fixed when a kernel is compiled, by name, such as `fixed.lanes`.

    Compiled code passes it on like a value, which takes no time; functions that are `by_type` read it. Numba tells
    one from another by their values. The same values make the same one in every process, so that kernels which hold it
    are found in the cache.
    """

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)
        self.values = values
        super().__init__(name=f"Fixed({', '.join(f'{name}={value}' for name, value in values.items())})")

    def __getattr__(self, name: str) -> Any:
        """Only asked for what is not there."""
        raise AttributeError(f"{self.name}: nothing is fixed as {name}")

    def but(self, **others: Any) -> "Fixed":
        """The same with other values."""
        return Fixed(**{**self.values, **others})

    def without(self, *names: str) -> "Fixed":
        """The same but for some values: what does not need them is compiled once for all of them."""
        return Fixed(**{name: value for name, value in self.values.items() if name not in names})

    def __reduce__(self) -> tuple[Any, ...]:
        """Numba's own holds a number that depends on what the process made before."""
        return _fixed, (self.values,)


def _fixed(values: dict[str, Any]) -> Fixed:
    return Fixed(**values)


register_model(Fixed)(models.OpaqueModel)


@typeof_impl.register(Fixed)
def _typeof_fixed(value: Fixed, _: Any) -> Fixed:
    return value
