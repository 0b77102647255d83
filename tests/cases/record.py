"""One case of the contract, and the short forms in which the lists of cases are written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Arrays = tuple[np.ndarray | None, ...]
SETTINGS = ("layout", "compat", "index_space", "tolerance")


@dataclass(frozen=True, eq=False)
class Case:
    """A call and what the contract says about it.

    Attributes:
        name: unique; the rule, then what is special.
        rule: number of the rule in the contract, "3.2".
        why: the fact that the case defends.
        operator: ONNX name.
        inputs: in ONNX order; None is an optional input left out.
        attributes: ONNX attributes as Python values.
        expected: outputs in ONNX order; None: refused.
        outputs: how many outputs are asked for.
        opset: version of the operator set, or None for the newest meaning.
        tolerance: relative; 0 asks for equality.
    """

    name: str
    rule: str
    why: str
    operator: str
    inputs: Arrays
    attributes: Mapping[str, Any] = field(default_factory=dict)
    expected: tuple[np.ndarray, ...] | None = None
    outputs: int = 1
    opset: int | None = None
    layout: str = "NCHW"
    compat: str = "spec"
    index_space: str = "auto"
    tolerance: float = 0.0


def plane(values: Any, kind: Any = np.float32) -> np.ndarray:
    """One (n, c) plane with its two leading axes; an array that has them already comes back as it is."""
    if isinstance(values, np.ndarray):
        return values
    return np.array(values, kind)[np.newaxis, np.newaxis]


def block(shape: Sequence[int], values: Any, kind: Any = np.float32) -> np.ndarray:
    """An array of a written shape; a number counts up from there."""
    if isinstance(values, int):
        values = range(values, values + int(np.prod(shape)))
    return np.array(values, kind).reshape(shape)


def shape64(*sizes: int) -> np.ndarray:
    """The output_shape input of MaxUnpool."""
    return np.array(sizes, np.int64)


def versions(
    operator: str,
    rule: str,
    why: str,
    inputs: Arrays,
    expected: tuple[np.ndarray, ...] | None,
    outputs: int,
    opsets: Sequence[int | None],
    given: dict[str, Any],
) -> list[Case]:
    """The case once per opset, its name made of rule, reason and opset."""
    settings = {name: given.pop(name) for name in SETTINGS if name in given}
    label = f"{rule}-{why.replace(' ', '_')}"
    cases = []
    for opset in opsets:
        name = label if opset is None else f"{label}-opset{opset}"
        cases.append(Case(name, rule, why, operator, inputs, given, expected, outputs, opset=opset, **settings))
    return cases


def pool(
    rule: str,
    why: str,
    x: Any,
    y: Any,
    indices: Any = None,
    *,
    opsets: Sequence[int | None] = (None,),
    kind: Any = np.float32,
    outputs: int | None = None,
    **given: Any,
) -> list[Case]:
    """A MaxPool case; y None is a refusal, indices make it a case of two outputs."""
    expected = None
    if y is not None:
        expected = (plane(y, kind),) if indices is None else (plane(y, kind), plane(indices, np.int64))
    wanted = outputs or (1 if indices is None else 2)
    return versions("MaxPool", rule, why, (plane(x, kind),), expected, wanted, opsets, given)


def unpool(
    rule: str,
    why: str,
    x: Any,
    indices: Any,
    y: Any,
    output_shape: np.ndarray | None = None,
    *,
    opsets: Sequence[int | None] = (None,),
    kind: Any = np.float32,
    **given: Any,
) -> list[Case]:
    """A MaxUnpool case; y None is a refusal."""
    inputs = (plane(x, kind), plane(indices, np.int64), output_shape)
    expected = None if y is None else (plane(y, kind),)
    return versions("MaxUnpool", rule, why, inputs, expected, 1, opsets, given)


def deconv(
    rule: str,
    why: str,
    x: Any,
    w: Any,
    y: Any,
    b: Sequence[float] | None = None,
    *,
    opsets: Sequence[int | None] = (None,),
    kind: Any = np.float32,
    **given: Any,
) -> list[Case]:
    """A ConvTranspose case; y None is a refusal."""
    bias = b if b is None or isinstance(b, np.ndarray) else np.array(b, kind)
    expected = None if y is None else (plane(y, kind),)
    return versions("ConvTranspose", rule, why, (plane(x, kind), plane(w, kind), bias), expected, 1, opsets, given)
