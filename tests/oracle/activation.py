"""The activations of the domain com.ms.internal.nhwc (6.5)."""

from collections.abc import Sequence

import numpy as np

from tests.oracle.rows import BYTES, Refused

PARAMETERS = {"Relu": 0, "LeakyRelu": 1, "Tanh": 0, "Sigmoid": 0, "Clip": 2, "HardSigmoid": 2, "HardSwish": 0}
FLOAT32_MAX = float(np.finfo(np.float32).max)


def check_activation(name: str | None, params: Sequence[float] | None, kind: np.dtype) -> tuple[float, ...]:
    """The parameters in force, or Refused."""
    if name is None:
        if params is not None:
            raise Refused("activation_params without activation")
        return ()
    if name not in PARAMETERS or (kind in BYTES and name not in ("Relu", "Clip")):
        raise Refused(f"activation {name!r}")
    given = tuple(float(value) for value in params or ())
    if name == "Relu" and len(given) == 2 and given[0] == 0 and given[1] >= FLOAT32_MAX:
        return ()
    if len(given) != PARAMETERS[name]:
        raise Refused(f"{name} takes {PARAMETERS[name]} parameters, got {given}")
    return given


def formula(v: np.ndarray, name: str, params: tuple[float, ...]) -> np.ndarray:
    """The table of 6.5 in the type of v."""
    p = [v.dtype.type(value) for value in params]
    one = v.dtype.type(1)
    if name == "Relu":
        return np.maximum(v, 0)
    if name == "LeakyRelu":
        return np.where(v >= 0, v, p[0] * v)
    if name == "Tanh":
        return np.tanh(v)
    if name == "Sigmoid":
        return one / (one + np.exp(-v))
    if name == "Clip":
        return np.minimum(np.maximum(v, p[0]), p[1])
    if name == "HardSigmoid":
        return np.maximum(0, np.minimum(one, p[0] * v + p[1]))
    return v * np.maximum(0, np.minimum(one, v / 6 + v.dtype.type(0.5)))


def activate(y: np.ndarray, name: str | None, params: tuple[float, ...], kind: np.dtype) -> np.ndarray:
    """Apply the activation in float32 (float64 for float64) and round once to `kind`.

    Integers know only Relu and Clip, whose bounds are saturated and rounded to the type.
    """
    with np.errstate(all="ignore"):
        if name is None:
            return y.astype(kind, copy=False)
        if kind in BYTES:
            limits = np.iinfo(kind)
            low, high = params if name == "Clip" else (0.0, np.inf)
            bounds = [np.rint(np.clip(bound, limits.min, limits.max)) for bound in (low, high)]
            return np.minimum(np.maximum(y.astype(np.float64), bounds[0]), bounds[1]).astype(kind)
        wide = y.astype(np.float64 if kind == np.float64 else np.float32)
        return formula(wide, name, params).astype(kind)
