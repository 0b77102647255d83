"""Errors of unpool that are errors of onnxruntime too, so that code that catches either class catches them.

    error_class(ModelError, "InvalidGraph")    a ModelError, and onnxruntime's InvalidGraph

The message is unpool's. The class of onnxruntime is the one that it raises itself in the same place: named where the
error is raised or, for all other errors, by the tables here, at the boundary of a session.
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


def error_class(ours: type[UnpoolError], other: type[Exception] | str) -> type[UnpoolError]:
    """The class of errors that are unpool's and another one's.

    Args:
        ours: gives the name and the module of the class.
        other: a class, or the name of one of onnxruntime's. If there is no such class, or it needs more than a message,
            the result is `ours`.

    >>> error = error_class(UnpoolError, TypeError)("run: expected a list")
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
    body = {"__module__": ours.__module__, "__doc__": ours.__doc__, "__reduce__": _reduce, "_parts": (ours, other)}
    return type(ours.__name__, (ours, kind), body)


def as_onnxruntime(error: UnpoolError, classes: Mapping[type[UnpoolError], str]) -> UnpoolError:
    """The error as one of onnxruntime's too, to be raised from the same cause; itself, if it is one already.

    An error with a cause of onnxruntime's gets the class of its cause. A missing package stays as it is.

    Args:
        error: of ours.
        classes: names of onnxruntime's classes by ours; the first match counts.
    """
    if isinstance(error, (TypeError, MissingExtraError)) or _is_of_onnxruntime(type(error)):
        return error
    ort_class = _cause(error) or next(name for ours, name in classes.items() if isinstance(error, ours))
    return error_class(type(error), ort_class)(*error.args).with_traceback(error.__traceback__)


def _cause(error: BaseException) -> type[Exception] | None:
    """The class of onnxruntime's error among the causes, if there is one."""
    cause = error.__cause__
    while cause is not None:
        if isinstance(cause, Exception) and _is_of_onnxruntime(type(cause)):
            return type(cause)
        cause = cause.__cause__
    return None


def _is_of_onnxruntime(kind: type) -> bool:
    return any(base.__module__.startswith("onnxruntime.") for base in kind.__mro__)


def _of_onnxruntime(name: str) -> type[Exception] | None:
    from onnxruntime.capi import onnxruntime_pybind11_state

    ort_class: type[Exception] | None = getattr(onnxruntime_pybind11_state, name, None)
    return ort_class


def _reduce(error: Any) -> tuple[Any, ...]:
    """The pickle of an error: its class is combined again, because no module has it."""
    return _rebuild, (*error._parts, error.args)


def _rebuild(ours: type[UnpoolError], other: type[Exception] | str, args: tuple[Any, ...]) -> UnpoolError:
    return error_class(ours, other)(*args)
