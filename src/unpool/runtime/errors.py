"""Errors of unpool that are also the errors of onnxruntime, so that whoever catches either class catches them.

    also(ModelError, "InvalidGraph")    a ModelError, and onnxruntime's InvalidGraph

The message is ours. The class of onnxruntime is the one that it raises itself in the same place. It is named where the
error is raised or, for all others, by the tables here, at the boundary of a session.
"""

from collections.abc import Mapping
from inspect import isfunction
from types import MappingProxyType
from typing import Any

from unpool.errors import FileError, MissingExtraError, MissingFileError, ModelError, UnpoolError, UnsupportedError

LOADING: Mapping[type[UnpoolError], str] = MappingProxyType(
    {
        MissingFileError: "NoSuchFile",
        FileError: "Fail",
        UnsupportedError: "NotImplemented",
        ModelError: "InvalidGraph",
        UnpoolError: "Fail",
    }
)
RUNNING: Mapping[type[UnpoolError], str] = MappingProxyType(
    {UnsupportedError: "NotImplemented", UnpoolError: "InvalidArgument"}
)

_combined: dict[tuple[Any, Any], type[UnpoolError]] = {}


def also(ours: type[UnpoolError], other: type[Exception] | str) -> type[UnpoolError]:
    """The class of errors that are ours and another one's.

    Args:
        ours: says the name and the place of the class.
        other: a class, or the name of one of onnxruntime's; without such a class, and for one that takes more than a
            message, it is ours alone.

    >>> error = also(UnpoolError, TypeError)("run: expected a list")
    >>> isinstance(error, UnpoolError), isinstance(error, TypeError), type(error).__name__
    (True, True, 'UnpoolError')
    """
    if (ours, other) not in _combined:
        _combined[ours, other] = _combine(ours, other)
    return _combined[ours, other]


def _combine(ours: type[UnpoolError], other: type[Exception] | str) -> type[UnpoolError]:
    kind = _of_onnxruntime(other) if isinstance(other, str) else other
    if kind is None or issubclass(ours, kind) or isfunction(kind.__init__) or issubclass(kind, UnicodeError):
        return ours
    body = {"__module__": ours.__module__, "__doc__": ours.__doc__, "__reduce__": _reduced, "_parts": (ours, other)}
    return type(ours.__name__, (ours, kind), body)


def as_onnxruntime(error: UnpoolError, classes: Mapping[type[UnpoolError], str]) -> UnpoolError:
    """The error as one that is onnxruntime's too, to be raised from the same cause; itself, where it is one already.

    An error that one of onnxruntime's caused has the class of that one. A missing package stays what it is.

    Args:
        error: of ours.
        classes: names of onnxruntime's classes by ours; the first one that fits is taken.
    """
    if isinstance(error, (TypeError, MissingExtraError)) or _is_of_onnxruntime(type(error)):
        return error
    found = _cause(error) or next(name for ours, name in classes.items() if isinstance(error, ours))
    return also(type(error), found)(*error.args).with_traceback(error.__traceback__)


def _cause(error: BaseException) -> type[Exception] | None:
    """The class of onnxruntime's error behind this one, if there is one."""
    behind = error.__cause__
    while behind is not None:
        if isinstance(behind, Exception) and _is_of_onnxruntime(type(behind)):
            return type(behind)
        behind = behind.__cause__
    return None


def _is_of_onnxruntime(kind: type) -> bool:
    return any(base.__module__.startswith("onnxruntime.") for base in kind.__mro__)


def _of_onnxruntime(name: str) -> type[Exception] | None:
    from onnxruntime.capi import onnxruntime_pybind11_state

    found: type[Exception] | None = getattr(onnxruntime_pybind11_state, name, None)
    return found


def _reduced(error: Any) -> tuple[Any, ...]:
    """How an error is pickled: its class is made again, for no module has it."""
    return _made_again, (*error._parts, error.args)


def _made_again(ours: type[UnpoolError], other: type[Exception] | str, args: tuple[Any, ...]) -> UnpoolError:
    return also(ours, other)(*args)
