"""unpool's session; a graph of a single node is always its own."""

from collections.abc import Mapping
from importlib import metadata

import numpy as np
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, NotImplemented, RuntimeException

import unpool

NOISE: tuple[str, ...] = ()
REFUSAL = (unpool.UnpoolError, Fail, InvalidArgument, NotImplemented, RuntimeException)


def version() -> str:
    """Of the installed package."""
    return metadata.version("unpool")


def answer(model: bytes, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of the model."""
    return list(unpool.InferenceSession(model, exact=True).run(None, dict(feeds)))
