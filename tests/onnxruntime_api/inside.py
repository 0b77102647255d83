"""The names of onnxruntime, with the session of `unpool.onnxruntime`, as a script may import them as `ort`."""

from typing import Any

import onnxruntime

from unpool.onnxruntime import InferenceSession

__all__ = ["InferenceSession"]


def __getattr__(name: str) -> Any:
    return getattr(onnxruntime, name)
