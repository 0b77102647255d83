"""For every row of the contract: each combination of its attributes, and each of its types."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from tests import oracle
from tests.cases.record import Case
from tests.oracle.rows import LAYOUTS
from tests.oracle.rows import types as types_of
from tests.support.runners import Outputs, run_oracle

PADDING_MODES = (None, "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
ACTIVATIONS: tuple[dict[str, Any], ...] = (
    {},
    {"activation": "Relu"},
    {"activation": "LeakyRelu", "activation_params": [0.5]},
    {"activation": "Clip", "activation_params": [-2.0, 3.0]},
)
WINDOW = {"strides": (None, [2, 3]), "pads": (None, [1, 0, 0, 1])}
CHOICES: dict[str, dict[str, tuple[Any, ...]]] = {
    "MaxPool": {
        "kernel_shape": ([3, 2],),
        **WINDOW,
        "auto_pad": PADDING_MODES,
        "storage_order": (None, 1),
        "ceil_mode": (None, 1),
        "dilations": (None, [1, 2]),
    },
    "MaxUnpool": {"kernel_shape": ([3, 2],), **WINDOW},
    "ConvTranspose": {
        "kernel_shape": (None, [3, 2]),
        **WINDOW,
        "auto_pad": PADDING_MODES,
        "dilations": (None, [1, 2]),
        "group": (None, 2),
        "output_padding": (None, [1, 0]),
        "output_shape": (None, [9, 8]),
    },
}
FIRST_VERSION = {"storage_order": 8, "ceil_mode": 10, "dilations": 10}  # of MaxPool; ConvTranspose has all in each
NEWEST_OPSET = 24
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 2.0**-9, "bfloat16": 2.0**-6}

Row = tuple[str, int, str]
ROWS: list[Row] = [
    (operator, version, layout)
    for layout, versions in LAYOUTS.items()
    for operator in versions
    for version in versions[operator]
]


def name_of(row: Row) -> str:
    """Such as MaxPool-12-NHWC."""
    return "-".join(map(str, row))


def last_opset(row: Row) -> int:
    """The newest opset that selects the row."""
    operator, version, layout = row
    later = [one for one in LAYOUTS[layout][operator] if one > version]
    return min(later) - 1 if later else NEWEST_OPSET


def values(shape: tuple[int, ...], kind: np.dtype[Any], seed: int) -> np.ndarray:
    """Small integers, some equal; not negative for uint8."""
    low = 0 if kind == np.uint8 else -9
    return np.random.default_rng((seed, *shape)).integers(low, 10, shape).astype(kind)


def inputs_of(operator: str, kind: np.dtype[Any], group: int, variant: int) -> tuple[np.ndarray | None, ...]:
    """The inputs of a call in channels-first layout; odd variants have the optional one too."""
    x = values((2, 4, 4, 5) if operator == "MaxPool" else (2, 4, 3, 2), kind, variant)
    if operator == "MaxPool":
        return (x,)
    if operator == "MaxUnpool":
        indices = np.random.default_rng(variant).permutation(x.size).reshape(x.shape)
        return (x, indices, np.array([2, 4, 7, 6], np.int64) if variant % 2 else None)
    w = values((4, 2, 3, 2), kind, variant)
    return (x, w, values((2 * group,), kind, variant + 1) if variant % 2 else None)


def make(
    row: Row, attributes: dict[str, Any], number: int, kind: np.dtype[Any] | None = None, outputs: int = 1
) -> Case:
    """A case of a row, of a type that takes turns with its number."""
    operator, version, layout = row
    types = types_of(operator, version if layout == "NCHW" else min(version, 12))
    kind = types[number % len(types)] if kind is None else kind
    x, *rest = inputs_of(operator, kind, attributes.get("group", 1), number)
    assert x is not None
    name = f"{name_of(row)} {number}: {kind} {attributes} outputs={outputs}"
    tolerance = TOLERANCE.get(kind.name, 0.0) if operator == "ConvTranspose" else 0.0
    x = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if layout == "NHWC" else x
    inputs, more = (x, *rest), {"opset": version, "layout": layout, "tolerance": tolerance}
    return Case(name, "5", "every version", operator, inputs, attributes, outputs=outputs, **more)


def own_choices(row: Row) -> dict[str, tuple[Any, ...]]:
    """The attributes of a row, each with the values that it takes."""
    operator, version, _ = row
    choices = CHOICES[operator]
    if operator != "MaxPool":
        return choices
    return {name: options for name, options in choices.items() if FIRST_VERSION.get(name, 1) <= version}


def combinations(row: Row) -> Iterator[Case]:
    """Every combination, for one output and two; some are refused for their values."""
    operator, version, layout = row
    names, options = zip(*own_choices(row).items(), strict=True)
    counts = (1, 2) if operator == "MaxPool" and version >= 8 else (1,)
    for number, (count, *chosen) in enumerate(product(counts, *options)):
        attributes = {name: value for name, value in zip(names, chosen, strict=True) if value is not None}
        if layout == "NHWC":
            attributes |= ACTIVATIONS[(number // 3) % len(ACTIVATIONS)]
        yield make(row, attributes, number, outputs=count)


def base(row: Row) -> dict[str, Any]:
    return {} if row[0] == "ConvTranspose" else {"kernel_shape": [3, 2]}


def over_types(row: Row) -> Iterator[Case]:
    """The plainest call in every type, and at the last opset that selects the row."""
    for kind in types_of(row[0], row[1]):
        yield make(row, base(row), 0, kind)
        yield replace(make(row, base(row), 1, kind), opset=last_opset(row))


def expected_of(case: Case) -> Outputs | None:
    """The oracle's outputs; None where it refuses."""
    try:
        return run_oracle(case)
    except oracle.Refused:
        return None
