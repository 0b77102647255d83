"""Values for random cases: ties, NaN, signed zeros, infinities, the lowest of a type; exact integers; activations."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.oracle.rows import BYTES

Rng = np.random.Generator
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 2.0**-10, "bfloat16": 2.0**-7}
ACTIVATIONS: tuple[dict[str, Any], ...] = (
    {"activation": "Relu"},
    {"activation": "Relu", "activation_params": [0.0, float("inf")]},
    {"activation": "LeakyRelu", "activation_params": [0.5]},
    {"activation": "Clip", "activation_params": [-1.0, 2.0]},
    {"activation": "Clip", "activation_params": [1.0, -2.0]},
    {"activation": "Tanh"},
    {"activation": "Sigmoid"},
    {"activation": "HardSigmoid", "activation_params": [0.25, 0.5]},
    {"activation": "HardSwish"},
)
BYTE_ACTIVATIONS: tuple[dict[str, Any], ...] = (
    {"activation": "Relu"},
    {"activation": "Clip", "activation_params": [1.25, 100.75]},
    {"activation": "Clip", "activation_params": [-1000.0, 300.0]},
)
WRONG: tuple[dict[str, Any], ...] = (
    {"activation": "relu"},
    {"activation": ""},
    {"activation": "Elu"},
    {"activation": "LeakyRelu"},
    {"activation": "Clip", "activation_params": [1.0]},
    {"activation": "Relu", "activation_params": [0.0, 6.0]},
    {"activation_params": [0.5]},
)


def activations(rng: Rng, kind: np.dtype[Any]) -> dict[str, Any]:
    """Attributes of an activation that the type allows; now and then of a wrong one."""
    right = BYTE_ACTIVATIONS if kind in BYTES else ACTIVATIONS
    choices = WRONG if rng.random() < 0.08 else right
    return dict(choices[int(rng.integers(len(choices)))])


def pool_values(rng: Rng, shape: tuple[int, ...], kind: np.dtype[Any]) -> np.ndarray:
    """Values whose order is hard: small integers with many ties, and what else the type can hold."""
    if kind.kind in "iu":
        lowest, highest = np.iinfo(kind).min, np.iinfo(kind).max
        pools = ([0, 1, 2, 3], [lowest, lowest + 1], [lowest], [lowest, 0, highest])
    else:
        inf, nan = np.inf, np.nan
        pools = (
            [-2, -1, 0, 1, 2],
            [-0.0, 0.0],
            [-inf, -inf, -inf, 1],
            [nan, -1, 0, 1, inf, -inf],
            [nan, 1, 2, 3, 4, 5],
        )
    style = int(rng.integers(len(pools) + 3))
    if style == len(pools) and kind.kind not in "iu":
        return with_odd_nans(rng, shape, kind)
    if style < len(pools):
        return rng.choice(np.array(pools[style]), shape).astype(kind)
    values = rng.normal(size=shape) * (1 if kind.kind != "u" else -1)
    return (values * 20).astype(np.int64).astype(kind) if kind.kind in "iu" else values.astype(kind)


def with_odd_nans(rng: Rng, shape: tuple[int, ...], kind: np.dtype[Any]) -> np.ndarray:
    """Small integers and quiet NaNs of both signs and several payloads, so that it shows which NaN was taken."""
    values = np.asarray(rng.integers(-2, 3, shape)).astype(kind)
    bits = values.view(f"u{kind.itemsize}")
    infinity = int(np.array(np.inf, kind).view(bits.dtype))
    quiet = infinity | (infinity >> 1 & ~infinity)
    sign = 1 << (8 * kind.itemsize - 1)
    nans = np.array([quiet, quiet | 5, quiet | sign, quiet | sign | 3], bits.dtype)
    return np.where(rng.random(shape) < 0.25, rng.choice(nans, shape), bits).view(kind)


def exact_or_real(rng: Rng, kind: np.dtype[Any]) -> tuple[Callable[[tuple[int, ...]], np.ndarray], float]:
    """A source of values for sums, and the tolerance of those sums.

    Small integers are exact in every type; real numbers ask for the tolerance of 8.1; non-finite ones are few.
    """
    style = int(rng.integers(10))
    if style < 6 or kind.kind in "iu":
        return lambda shape: rng.integers(-3, 4, shape).astype(kind), 0.0
    if style < 8:
        special = np.array([1, 2, -1, 0, 3, np.inf, -np.inf, np.nan])
        share = np.array([4, 4, 4, 4, 4, 1, 1, 0.5])
        return lambda shape: rng.choice(special, shape, p=share / share.sum()).astype(kind), 0.0
    return lambda shape: rng.normal(size=shape).astype(kind), TOLERANCE.get(kind.name, 0.0)
