"""Errors of unpool that are errors of onnxruntime too, so that code that catches either class catches them.

    error_class(ModelError, "InvalidGraph")    a ModelError, and onnxruntime's InvalidGraph

The message is unpool's. The class of onnxruntime is the one that it raises itself in the same place: named where the
error is raised or, for all other errors, by the tables here, at the boundary of a session.
"""

from collections.abc import Mapping, Sequence
from inspect import isfunction
from typing import Any

import numpy as np

from unpool.errors import MissingFileError, ModelError, UnpoolError, UnsupportedError

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

_UNKNOWN = "is not a registered function/op"  # of onnxruntime's message about an operator that nobody has

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


def loading_error(error: Exception, source: str, own: UnpoolError | None, advice: str = "") -> UnpoolError:
    """The error of onnxruntime, which cannot load a model, as an UnpoolError too; `own` says why unpool cannot."""
    if own is not None:
        return error_class(type(own), type(error))(*own.args)
    message = ort_message(error)
    if _is_of_onnxruntime(type(error)) and source not in message:
        message = f"{source}: {message}"
    is_unknown = advice or _UNKNOWN in message
    kind = UnsupportedError if is_unknown else _OWN.get(type(error).__name__, UnpoolError)
    return error_class(kind, type(error))(f"{message}. {advice}".strip())


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
