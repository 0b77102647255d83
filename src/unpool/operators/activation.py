"""The activations that `com.ms.internal.nhwc` fuses behind the three operators: names and parameter counts.

Source: ONNX Runtime's helper for fused activations; names are case-sensitive.
"""

from dataclasses import dataclass

import numpy as np

from unpool.errors import UnpoolError, UnsupportedError, suggest_name
from unpool.operators.attributes import Attributes
from unpool.operators.contract import Row

PARAMETERS = {
    "Relu": (),
    "LeakyRelu": ("alpha",),
    "Tanh": (),
    "Sigmoid": (),
    "Clip": ("min", "max"),
    "HardSigmoid": ("alpha", "beta"),
    "HardSwish": (),
}


@dataclass(frozen=True, slots=True)
class Activation:
    """A known name with as many parameters as it takes."""

    name: str
    params: tuple[float, ...] = ()


def from_attributes(row: Row, attributes: Attributes) -> Activation | None:
    """The activation that a node asks for, or None.

    Raises:
        UnpoolError: parameters without a name, an unknown name, or a wrong number of parameters.
    """
    name = attributes.get("activation")
    params: tuple[float, ...] = attributes.get("activation_params", ())
    if name is None:
        if "activation_params" in attributes:
            raise UnpoolError(f"{row.label}: activation_params needs activation, got only {list(params)}. Name it.")
        return None
    if name not in PARAMETERS:
        raise UnpoolError(
            f"{row.label}: activation is one of {', '.join(PARAMETERS)}; got {name!r}. {suggest_name(name, PARAMETERS)}"
        )
    if name == "Relu" and _is_unbounded_relu(params):
        return Activation("Relu")
    expected = PARAMETERS[name]
    if len(params) != len(expected):
        words = ", ".join(expected) or "no parameters"
        raise UnpoolError(
            f"{row.label}: {name} takes activation_params [{words}], got {list(params)}. Pass {len(expected)} values."
        )
    return Activation(name, params)


def check_type(row: Row, activation: Activation | None, dtype: str) -> None:
    """Integers know only Relu and Clip.

    Raises:
        UnsupportedError: any other activation on int8 or uint8.
    """
    if activation is not None and dtype in ("int8", "uint8") and activation.name not in ("Relu", "Clip"):
        raise UnsupportedError(
            f"{row.label}: activation on {dtype} is Relu or Clip, got {activation.name}. Use a float type."
        )


def _is_unbounded_relu(params: tuple[float, ...]) -> bool:
    return len(params) == 2 and params[0] == 0.0 and params[1] >= float(np.finfo(np.float32).max)
