"""Errors of models: any exception raised while a model is read becomes an UnpoolError that names the model.

    error_class(ModelError, "InvalidGraph")    a ModelError, and onnxruntime's InvalidGraph

Such an error is of both classes, so that code that catches either catches it. The message is unpool's. The class of
onnxruntime is the one that it raises itself in the same place.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import isfunction
from traceback import walk_tb
from typing import Any

from unpool.errors import ModelError, ShapeError, UnpoolError

LONGEST = 300  # characters quoted of another library's message

_combined: dict[tuple[Any, Any], type[UnpoolError]] = {}


@contextmanager
def model_errors(source: object) -> Iterator[None]:
    """Turns an exception of another class, unless it is from a handler of signals, into a ModelError that names the
    model, or MemoryError into a ShapeError.
    """
    try:
        yield
    except UnpoolError:
        raise
    except MemoryError as error:
        fact = "out of memory while loading the model. Free memory, or split the model."
        raise ShapeError(f"{source_name(source)}: {fact}") from error
    except Exception as error:
        if is_from_signal_handler(error):
            raise
        fact = f"invalid ONNX model, {type(error).__name__}: {short_message(error)}. Export it again."
        raise ModelError(f"{source_name(source)}: {fact}") from error


def is_from_signal_handler(error: BaseException) -> bool:
    """True if a handler of signals raised the error: a time limit of the caller's, say, and no fault of the code that
    it interrupted.
    """
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {getattr(call, "__code__", None) for handler in handlers for call in (handler, type(handler).__call__)}
    return any(frame.f_code in codes for frame, _ in walk_tb(error.__traceback__))


def source_name(source: object) -> str:
    """The name that messages give to the source of a model."""
    if isinstance(source, (str, os.PathLike)):
        return str(source)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return f"the {len(source)} bytes"
    return f"the {type(source).__name__}"


def short_message(error: BaseException) -> str:
    """The first LONGEST characters of `one_line`."""
    message = one_line(error)
    return message if len(message) <= LONGEST else f"{message[:LONGEST]}..."


def one_line(error: BaseException) -> str:
    """The message of an error on one line without the full stop; its type if it has no message."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


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
    parts = getattr(ours, "_parts", ours), other
    body = {"__module__": ours.__module__, "__doc__": ours.__doc__, "__reduce__": _reduce, "_parts": parts}
    return _combined.setdefault((ours, other), type(ours.__name__, (ours, kind), body))


def _reduce(error: Any) -> tuple[Any, ...]:
    return _rebuild, (error._parts, error.args)  # no module has the class of the error


def _rebuild(parts: tuple[Any, Any], args: tuple[Any, ...]) -> UnpoolError:
    return _joined(*parts)(*args)


def _joined(ours: Any, other: Any) -> type[UnpoolError]:
    return error_class(_joined(*ours) if isinstance(ours, tuple) else ours, other)
