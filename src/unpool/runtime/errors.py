"""Errors of unpool that are errors of onnxruntime too, so that code that catches either class catches them.

    error_class(ModelError, "InvalidGraph")    a ModelError, and onnxruntime's InvalidGraph

The message is unpool's. The class of onnxruntime is the one that it raises itself in the same place: named where the
error is raised or, for all other errors, by the tables here, at the boundary of a session.
"""

from collections.abc import Mapping, Sequence
from inspect import isfunction
from typing import Any

import numpy as np

from unpool.errors import FileError, MissingExtraError, MissingFileError, ModelError, UnpoolError, UnsupportedError

LOADING: Mapping[type[UnpoolError], str] = {
    MissingFileError: "NoSuchFile",
    FileError: "Fail",
    UnsupportedError: "NotImplemented",
    ModelError: "InvalidGraph",
    UnpoolError: "Fail",
}
RUNNING: Mapping[type[UnpoolError], str] = {UnsupportedError: "NotImplemented", UnpoolError: "InvalidArgument"}

_OWN: Mapping[str, type[UnpoolError]] = {
    "NoSuchFile": MissingFileError,
    "NotImplemented": UnsupportedError,
    "InvalidGraph": ModelError,
    "InvalidProtobuf": ModelError,
    "InvalidArgument": ModelError,
    "RuntimeException": ModelError,
    "Fail": ModelError,
}
"""The class of unpool for an error of onnxruntime while it loads a model, by its class; UnpoolError for others."""

_combined: dict[tuple[Any, Any], type[UnpoolError]] = {}


class FallbackWarning(UserWarning):
    """onnxruntime refuses nodes of a model, so onnx's slow ReferenceEvaluator runs them."""


def error_class(ours: type[UnpoolError], other: type[Exception] | str) -> type[UnpoolError]:
    """The class of errors that are both, with unpool's name; `ours` where onnxruntime has no such class.

    >>> error = error_class(UnpoolError, TypeError)("run: expected a list")
    >>> isinstance(error, UnpoolError), isinstance(error, TypeError), type(error).__name__
    (True, True, 'UnpoolError')
    """
    if (ours, other) in _combined:
        return _combined[ours, other]
    kind: Any = other
    if isinstance(other, str):
        from onnxruntime.capi import onnxruntime_pybind11_state

        kind = getattr(onnxruntime_pybind11_state, other, None)
    if kind is None or issubclass(ours, kind) or isfunction(kind.__init__) or issubclass(kind, UnicodeError):
        return _combined.setdefault((ours, other), ours)
    body = {"__module__": ours.__module__, "__doc__": ours.__doc__, "__reduce__": _reduce, "_parts": (ours, other)}
    return _combined.setdefault((ours, other), type(ours.__name__, (ours, kind), body))


def as_onnxruntime(error: UnpoolError, classes: Mapping[type[UnpoolError], str]) -> UnpoolError:
    """The error as one of onnxruntime's too, to be raised from the same cause; itself, if it is one already.

    An error with a cause of onnxruntime's gets the class of its cause; others get the first match of `classes`. An
    error of a missing package stays as it is.
    """
    if isinstance(error, (TypeError, MissingExtraError)) or _is_of_onnxruntime(type(error)):
        return error
    cause = error.__cause__
    while cause is not None and not (isinstance(cause, Exception) and _is_of_onnxruntime(type(cause))):
        cause = cause.__cause__
    by_class = next(name for ours, name in classes.items() if isinstance(error, ours))
    return error_class(type(error), by_class if cause is None else type(cause))(*error.args).with_traceback(
        error.__traceback__
    )


def _is_of_onnxruntime(kind: type) -> bool:
    return any(base.__module__.startswith("onnxruntime.") for base in kind.__mro__)


def _reduce(error: Any) -> tuple[Any, ...]:
    return _rebuild, (*error._parts, error.args)  # no module has the class of the error


def _rebuild(ours: type[UnpoolError], other: type[Exception] | str, args: tuple[Any, ...]) -> UnpoolError:
    return error_class(ours, other)(*args)


def ort_message(error: Exception) -> str:
    """The first line of onnxruntime's message, without the codes in front of it."""
    text = str(error).strip().splitlines()
    return _without_codes(text[0].strip()) if text else type(error).__name__


def loading_error(error: Exception, source: str, own: UnpoolError | None) -> UnpoolError:
    """The error of onnxruntime, which cannot load a model, as an UnpoolError too; `own` says why unpool cannot."""
    if own is not None:
        return error_class(type(own), type(error))(*own.args)
    message = ort_message(error)
    return error_class(_OWN.get(type(error).__name__, UnpoolError), type(error))(
        message if source in message or not _is_of_onnxruntime(type(error)) else f"{source}: {message}."
    )


def run_session(session: Any, names: Sequence[str] | None, feed: Mapping[str, Any], options: Any = None) -> list[Any]:
    """The outputs of a run; an error of onnxruntime becomes an UnpoolError too."""
    try:
        arrays = {name: np.asarray(value) if isinstance(value, np.generic) else value for name, value in feed.items()}
        return list(session.run(names, arrays, options))
    except UnpoolError:
        raise
    except Exception as error:
        if not _is_of_onnxruntime(type(error)) and not isinstance(error, (ValueError, RuntimeError, TypeError)):
            raise
        ours = UnsupportedError if type(error).__name__ == "NotImplemented" else UnpoolError
        raise error_class(ours, type(error))(f"{_without_codes(' '.join(str(error).split()))}.") from error


def _without_codes(text: str) -> str:
    line = text.split(" : ", 3)[-1] if text.startswith("[ONNXRuntimeError]") else text
    return line.removesuffix(" node with name ''").rstrip(".")
