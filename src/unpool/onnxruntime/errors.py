"""Errors of onnxruntime as errors of unpool too, at the boundary of a session."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unpool.errors import MissingFileError, ModelError, UnpoolError, UnsupportedError
from unpool.graph.errors import error_class

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


class FallbackWarning(UserWarning):
    """onnxruntime refuses nodes of a model, so onnx's slow ReferenceEvaluator runs them."""


def _is_of_onnxruntime(kind: type) -> bool:
    return any(base.__module__.startswith("onnxruntime.") for base in kind.__mro__)


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
