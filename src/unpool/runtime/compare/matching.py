"""Matches the values of two runs, in the order of the nodes of the first, and those of two graphs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from unpool.runtime.compare.choices import Choices, choices, is_choice
from unpool.runtime.compare.compared import ComparedValue
from unpool.runtime.compare.difference import Difference, Tolerance, difference
from unpool.runtime.compare.stepwise import Stepwise
from unpool.runtime.graph.nodes import domain, node_name, reads

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
                yield ComparedValue(node_name(node), model.operator(node), name, found, begins, chosen)
                if found.departs:
                    departing.add(name)


def compared_outputs(expected: Values, got: Values, tolerance: Tolerance) -> tuple[ComparedValue, ...]:
    """The outputs of two models by their names or, where neither has all names of the other, in their order."""
    by_name = set(expected) <= set(got) or set(got) <= set(expected)
    names: Sequence[str] = [one for one in expected if one in got] if by_name else list(got)
    pairs = list(zip(names if by_name else expected, names, strict=False))
    own = [one for one in expected if one not in {first for first, _ in pairs}]
    theirs = [other for other in got if other not in {second for _, second in pairs}]
    return (
        *(ComparedValue("", "", one, difference(expected[one], got[other], tolerance)) for one, other in pairs),
        *(ComparedValue("", "", one, Difference("type", 1.0, expected="an output", got="none")) for one in own),
        *(ComparedValue("", "", one, Difference("type", 1.0, expected="none", got="an output")) for one in theirs),
    )


def correspondence(first: Stepwise, second: Stepwise, inputs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The values of a second model that stand where those of the first one do, by name of the first.

    Two values correspond where the same operators lead to both from the inputs and from any constants; attributes may
    differ. Behind a part that is written differently, nodes correspond again if operator and all names are the same.

    Args:
        first: a model.
        second: another one.
        inputs: pairs of inputs that are fed the same.
    """
    pairs = list(inputs)
    numbers: dict[tuple[Any, ...], int] = {}
    own = _places(first, {one: at for at, (one, _) in enumerate(pairs)}, numbers)
    theirs = _places(second, {other: at for at, (_, other) in enumerate(pairs)}, numbers)
    found: dict[str, str] = {}
    for number, names in own.items():
        if len(theirs.get(number, ())) == len(names):
            found |= zip(names, theirs[number], strict=True)
    return found | _behind_changes(first, second, {**found, **dict(pairs)})


def _places(model: Stepwise, inputs: Mapping[str, int], numbers: dict[tuple[Any, ...], int]) -> dict[int, list[str]]:
    """The values of a model by a number for their place, which is the same wherever the same operators lead there."""
    known: dict[str, int] = {name: numbers.setdefault(("input", at), len(numbers)) for name, at in inputs.items()}
    constant = numbers.setdefault(("constant",), len(numbers))
    found: dict[int, list[str]] = {}
    for node in model.graph.nodes:
        read = tuple(known.get(name, constant) if name else -1 for name in node.input)
        for position, name in enumerate(node.output):
            key = (node.op_type, domain(node), position, read)
            known[name] = numbers.setdefault(key, len(numbers))
            found.setdefault(known[name], []).append(name)
    return found


def _behind_changes(first: Stepwise, second: Stepwise, known: Mapping[str, str]) -> dict[str, str]:
    """Values of the same name behind parts that are written differently: of the same node, on the same inputs."""
    own, theirs = _makers(first), _makers(second)
    found: dict[str, str] = {}
    taken = set(known.values())
    for node in first.graph.nodes:
        other = next((theirs[name] for name in node.output if name in theirs and name not in known), None)
        if other is None or not _is_alike(node, other):
            continue
        if all(_is_same(name, {**known, **found}, own, theirs) for name in node.input):
            found |= {name: name for name in node.output if name not in known and name not in taken}
    return found


def _makers(model: Stepwise) -> dict[str, onnx.NodeProto]:
    return {name: node for node in model.graph.nodes for name in node.output if name}


def _is_alike(one: onnx.NodeProto, other: onnx.NodeProto) -> bool:
    same_names = list(one.input) == list(other.input) and list(one.output) == list(other.output)
    return same_names and (one.op_type, domain(one)) == (other.op_type, domain(other))


def _is_same(
    name: str, known: Mapping[str, str], own: Mapping[str, onnx.NodeProto], theirs: Mapping[str, onnx.NodeProto]
) -> bool:
    """Whether a name means the same in both: as far as is known, or a constant, or the end of what differs."""
    if name in known:
        return known[name] == name
    if name not in own or name not in theirs:
        return name not in own and name not in theirs
    return own[name].op_type != theirs[name].op_type


def _choices(
    node: onnx.NodeProto, position: int, known: Values, got: Any, found: Difference, tolerance: Tolerance
) -> Choices | None:
    x = known.get(node.input[0]) if is_choice(node, position) else None
    if found.kind != "values" or not isinstance(x, np.ndarray):
        return None
    return choices(node, x, known[node.output[position]], got, tolerance)
