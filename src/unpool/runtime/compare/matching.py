"""Matches the values of two runs, in the order of the nodes of the first."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from unpool.runtime.compare.choices import Choices, choices, is_choice
from unpool.runtime.compare.compared import ComparedValue
from unpool.runtime.compare.difference import Difference, Tolerance, difference
from unpool.runtime.compare.stepwise import Stepwise
from unpool.runtime.graph.nodes import label, reads

Values = Mapping[str, Any]


def compared_values(
    model: Stepwise, seen: Values, expected: Values, got: Values, tolerance: Tolerance
) -> Iterator[ComparedValue]:
    """Every value that both runs have.

    Args:
        model: the first one.
        seen: inputs and constants of the first run.
        expected: values of the first run.
        got: values of the second.
        tolerance: what they may differ by.
    """
    departing: set[str] = set()
    known = {**seen, **expected}
    for node in model.graph.nodes:
        is_led = not departing.isdisjoint(reads(node))
        for position, name in enumerate(node.output):
            if name in expected and name in got:
                found = difference(expected[name], got[name], tolerance)
                chosen = _choices(node, position, known, got[name], found, tolerance)
                begins = found.departs and not is_led
                yield ComparedValue(label(node), model.operator(node), name, found, begins, chosen)
                if found.departs:
                    departing.add(name)


def compared_outputs(expected: Values, got: Values, tolerance: Tolerance) -> tuple[ComparedValue, ...]:
    """The outputs of two models by their names or, where these are others, in their order."""
    names: Sequence[str] = list(got) if set(expected) != set(got) else list(expected)
    pairs = zip(expected, names, strict=False)
    return tuple(ComparedValue("", "", one, difference(expected[one], got[other], tolerance)) for one, other in pairs)


def _choices(
    node: onnx.NodeProto, position: int, known: Values, got: Any, found: Difference, tolerance: Tolerance
) -> Choices | None:
    x = known.get(node.input[0]) if is_choice(node, position) else None
    if found.kind != "values" or not isinstance(x, np.ndarray):
        return None
    return choices(node, x, known[node.output[position]], got, tolerance)
