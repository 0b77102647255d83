"""Whole networks as ONNX files with random weights: ours through the session, peers on the same file."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

import unpool
from benchmarks.architectures import NETWORKS
from benchmarks.case import Case
from benchmarks.layers import Layers
from benchmarks.one_node import Arrays


def arrays(case: Case, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The network's input."""
    return {"x": rng.standard_normal(case.shape, np.float32)}


def model(case: Case, given: Arrays) -> onnx.ModelProto:
    """The network, with the same weights every time."""
    layers = Layers(given["x"].shape)
    spatial = given["x"].shape[2:]
    return layers.model(NETWORKS[case.name](layers, spatial))


def by_unpool(case: Case, given: Arrays, threads: int, *, tune: bool = False) -> Callable[[], Any]:
    """A run of our session."""
    session = unpool.InferenceSession(model(case, given).SerializeToString(), threads=threads, tune=tune)
    return lambda: session.run(None, dict(given))
