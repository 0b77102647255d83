"""Element-wise activations, in the type of sums."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Epilogue(NamedTuple):
    """The last steps of a kernel: the layout of its results, and an activation."""

    is_channels_last: bool = False  # whether channels are the last axis of inputs and outputs
    name: str | None = None  # of the activation; None for none
    params: tuple[float, ...] = ()  # of the activation

    @property
    def bounds(self) -> tuple[float, float, float]:
        """The activation as a slope below 0, a lower and an upper bound."""
        low, high = (0.0, math.inf) if self.name == "Relu" else (-math.inf, math.inf)
        if self.name == "Clip":
            low, high = self.params
        return self.params[0] if self.name == "LeakyRelu" else 1.0, low, high

    @property
    def is_active(self) -> bool:
        """True if there is an activation."""
        return self.name is not None

    @property
    def is_simple(self) -> bool:
        """True if slope and bounds describe the activation."""
        is_known = self.name in (None, "Relu", "LeakyRelu", "Clip")
        return is_known and not any(math.isnan(each) for each in self.params)


PLAIN = Epilogue()  # channels first, no activation


def activate(values, name: str, params: tuple[float, ...]):
    """The activated values, which may be overwritten; NaN stays NaN. Only Relu and Clip take integers, of 8 bits.

    >>> activate(np.float32([-1, 2]), "LeakyRelu", (0.5,))
    array([-0.5,  2. ], dtype=float32)
    """
    params = tuple(_bound(values.dtype, param) for param in params)
    with np.errstate(over="ignore", invalid="ignore"):
        return _FORMULAS[name](values, *params)


def _bound(dtype, value: float):
    """A parameter in the type of the values: integers round and saturate."""
    if dtype.kind == "f":
        return dtype.type(value)
    info = np.iinfo(dtype)
    return dtype.type(np.clip(np.rint(value), info.min, info.max))


def _sigmoid(values):
    one = values.dtype.type(1)
    decay = np.exp(-np.abs(values))
    return np.where(values >= 0, one, decay) / (one + decay)


def _hard_sigmoid(values, alpha, beta):
    return np.maximum(values.dtype.type(0), np.minimum(values.dtype.type(1), alpha * values + beta))


_FORMULAS: dict[str, Callable[..., Any]] = {
    "Relu": lambda values: np.maximum(values, values.dtype.type(0), out=values),
    "LeakyRelu": lambda values, alpha: np.where(values >= 0, values, alpha * values),
    "Tanh": lambda values: np.tanh(values, out=values),
    "Sigmoid": _sigmoid,
    "Clip": lambda values, low, high: np.minimum(np.maximum(values, low), high),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": lambda values: values * _hard_sigmoid(values, values.dtype.type(1 / 6), values.dtype.type(0.5)),
}
