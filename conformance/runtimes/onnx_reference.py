"""onnx's ReferenceEvaluator as it comes with onnx."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

NOISE: tuple[str, ...] = ()


def version() -> str:
    """Of the installed package."""
    return str(onnx.__version__)


def answer(model: bytes, feeds: Mapping[str, np.ndarray]) -> list[Any]:
    """The outputs of the model."""
    return list(ReferenceEvaluator(onnx.load_from_string(model)).run(None, dict(feeds)))
