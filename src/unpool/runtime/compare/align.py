"""Models whose every value can be compared: values as outputs, and the values of two runs or two graphs in pairs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper

from unpool.dtypes import AnyArray
from unpool.errors import UnsupportedError
from unpool.graph import shapes
from unpool.graph.errors import source_name
from unpool.graph.graph import Graph, prune
from unpool.graph.load import ModelSource, load_for_command
from unpool.graph.narrow_floats import narrowest_floats
from unpool.graph.nodes import attributes, domain, is_unpool_op, node_name, operator_version, reads, writes
from unpool.graph.shapes import Types
from unpool.graph.weights import is_too_large
from unpool.numerics import ArrayDiff, Tolerance, diff_arrays, max_magnitude, narrowest_float
from unpool.operators.contract import NHWC
from unpool.operators.semantics import Semantics
from unpool.runtime.compare.records import IndexTies, ValueDiff
from unpool.runtime.rewrite.open_model import open_model

Values: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class ComparableModel:
    """A model without functions, whose values can become outputs, and the graph of the nodes that its outputs need."""

    model: onnx.ModelProto
    graph: Graph
    types: Types
    narrowest: Mapping[str, str]  # name of the narrowest float type on the way to a value

    def operator(self, node: onnx.NodeProto) -> str:
        """The operator and its version, such as `MaxPool-12`."""
        return operator_version(node, self.graph.opsets)

    def values(self, count: int | None = None) -> tuple[str, ...]:
        """Names of the tensors that the first `count` nodes make, of all nodes by default."""
        names = (name for node in self.graph.nodes[:count] for name in writes(node))
        return tuple(name for name in names if shapes.element(self.types.get(name)) > 0)

    def with_value_outputs(self, count: int | None = None) -> onnx.ModelProto:
        """The model up to node `count`, all of it by default, with the values of all these nodes as outputs."""
        graph = self.model.graph
        later = set() if count is None else set(map(_first_output, self.graph.nodes[count:]))
        nodes = [node for node in graph.node if _first_output(node) not in later]
        read = {name for node in nodes for name in reads(node)}
        unread = {tensor.name for tensor in graph.initializer if tensor.name not in read}
        outputs = {value.name: value for value in graph.output}
        model = onnx.ModelProto(ir_version=self.model.ir_version, opset_import=self.model.opset_import)
        model.graph.name = graph.name
        model.graph.node.extend(nodes)
        model.graph.initializer.extend(tensor for tensor in graph.initializer if tensor.name not in unread)
        model.graph.sparse_initializer.extend(graph.sparse_initializer)
        model.graph.input.extend(value for value in graph.input if value.name not in unread)
        model.graph.output.extend(
            outputs.get(name) or helper.make_value_info(name, self.types[name]) for name in self.values(count)
        )
        model.graph.value_info.extend(graph.value_info)
        return model


def load_for_comparison(source: ModelSource, semantics: Semantics) -> ComparableModel:
    """Read a model of at most 2 GiB, with the checks of `unpool.InferenceSession`."""
    editable = open_model(load_for_command(source), semantics)
    if is_too_large(editable.model):
        raise UnsupportedError(
            f"{source_name(source)}: is larger than 2 GiB with its weights, which runtimes take from memory. Save it "
            "with its weights in another file (onnx.save, save_as_external_data=True), and pass its path."
        )
    narrowest = narrowest_floats(editable.graph, editable.inference)
    return ComparableModel(editable.model, prune(editable.graph), editable.inference.types, narrowest)


def _first_output(node: onnx.NodeProto) -> str:
    """The first value that a node makes, which identifies copies of the node."""
    return next(iter(writes(node)), "")


def diff_values(
    model: ComparableModel, inputs: Values, expected: Values, actual: Values, tolerance: Tolerance
) -> Iterator[ValueDiff]:
    """The differences of all values that both runs have, by the inputs and constants of the first run.

    The tolerance is that of the narrowest float type on the way to a value.
    """
    differing: set[str] = set()
    known = {**inputs, **expected}
    for node in model.graph.nodes:
        follows = not differing.isdisjoint(reads(node))
        for position, name in enumerate(node.output):
            if name in expected and name in actual:
                allowed, ties = tolerance.through(model.narrowest.get(name, "")), None
                diff = diff_arrays(expected[name], actual[name], allowed)
                if diff.kind == "values" and position == 1 and node.op_type == "MaxPool" and is_unpool_op(node):
                    x = known.get(node.input[0])
                    if isinstance(x, np.ndarray):
                        ties = count_ties(node, x, expected[name], actual[name], allowed)
                is_first = diff.differs and not follows
                yield ValueDiff(node_name(node), model.operator(node), name, diff, is_first, ties)
                if diff.differs:
                    differing.add(name)


def diff_outputs(
    first: ComparableModel, second: ComparableModel, expected: Values, actual: Values, tolerance: Tolerance
) -> tuple[ValueDiff, ...]:
    """The outputs of two models by their names or, where neither has all names of the other, in their order."""
    by_name = set(expected) <= set(actual) or set(actual) <= set(expected)
    if by_name:
        pairs = {name: name for name in expected if name in actual}
    else:
        pairs = dict(zip(expected, actual, strict=False))
    missing = [name for name in expected if name not in pairs]
    extra = [name for name in actual if name not in pairs.values()]
    diffs = {}
    for own, other in pairs.items():
        allowed = tolerance.through(narrowest_float((first.narrowest.get(own, ""), second.narrowest.get(other, ""))))
        diffs[own] = diff_arrays(expected[own], actual[other], allowed)
    return (
        *(ValueDiff("", "", name, diff) for name, diff in diffs.items()),
        *(ValueDiff("", "", name, ArrayDiff("type", expected="an output", actual="none")) for name in missing),
        *(ValueDiff("", "", name, ArrayDiff("type", expected="none", actual="an output")) for name in extra),
    )


def count_ties(
    node: onnx.NodeProto, x: AnyArray, expected: AnyArray, actual: AnyArray, tolerance: Tolerance
) -> IndexTies:
    """The indices of a MaxPool that differ between two runtimes, counted by the elements of x that they name."""
    planes = np.moveaxis(x, -1, 1) if domain(node) == NHWC else x
    if attributes(node).get("storage_order"):
        planes = planes.transpose(0, 1, *range(planes.ndim - 1, 1, -1))
    elements = planes.astype(np.float64).reshape(-1)
    differs = expected != actual
    first, second = expected[differs], actual[differs]
    inside = (np.minimum(first, second) >= 0) & (np.maximum(first, second) < elements.size)
    own, other = elements[first[inside]], elements[second[inside]]
    ties = (own == other) | (np.isnan(own) & np.isnan(other))
    near = ~ties & (np.abs(own - other) <= tolerance.limit(x.dtype) * max_magnitude(elements))
    return IndexTies(int(ties.sum()), int(near.sum()), int((~ties & ~near).sum()), int((~inside).sum()))


def match_values(first: ComparableModel, second: ComparableModel, inputs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The values of a second model that correspond to those of the first one, by name of the first.

    Two values correspond where the same operators lead to both from the inputs and from any constants; attributes may
    differ. After a part that is written differently, nodes correspond again if operator and all names are the same.
    `inputs` are pairs of inputs that get the same array.
    """
    pairs = list(inputs)
    numbers: dict[tuple[Any, ...], int] = {}
    own = _number_values(first, {name: at for at, (name, _) in enumerate(pairs)}, numbers)
    theirs = _number_values(second, {name: at for at, (_, name) in enumerate(pairs)}, numbers)
    matches: dict[str, str] = {}
    for number, names in own.items():
        if len(theirs.get(number, ())) == len(names):
            matches |= zip(names, theirs[number], strict=True)
    return matches | _match_by_name(first, second, {**matches, **dict(pairs)})


def _number_values(
    model: ComparableModel, inputs: Mapping[str, int], numbers: dict[tuple[Any, ...], int]
) -> dict[int, list[str]]:
    """The values of a model by a number, which is the same wherever the same operators lead to the value."""
    known: dict[str, int] = {name: numbers.setdefault(("input", at), len(numbers)) for name, at in inputs.items()}
    constant = numbers.setdefault(("constant",), len(numbers))
    by_number: dict[int, list[str]] = {}
    for node in model.graph.nodes:
        read = tuple(known.get(name, constant) if name else -1 for name in node.input)
        for position, name in enumerate(node.output):
            key = (node.op_type, domain(node), position, read)
            known[name] = numbers.setdefault(key, len(numbers))
            by_number.setdefault(known[name], []).append(name)
    return by_number


def _match_by_name(first: ComparableModel, second: ComparableModel, known: Mapping[str, str]) -> dict[str, str]:
    """Values of the same name after parts that are written differently: of the same node, on the same inputs."""
    own, theirs = (
        {name: node for node in each.graph.nodes for name in node.output if name} for each in (first, second)
    )

    def is_same(name: str) -> bool:
        """True for matches, for constants, and where the parts that are written differently end."""
        if name in known or name in matches:
            return {**known, **matches}[name] == name
        if name not in own or name not in theirs:
            return name not in own and name not in theirs
        return own[name].op_type != theirs[name].op_type

    matches: dict[str, str] = {}
    taken = set(known.values())
    for node in first.graph.nodes:
        other = next((theirs[name] for name in node.output if name in theirs and name not in known), None)
        if other is None or (node.op_type, domain(node)) != (other.op_type, domain(other)):
            continue
        has_same_names = list(node.input) == list(other.input) and list(node.output) == list(other.output)
        if has_same_names and all(map(is_same, node.input)):
            matches |= {name: name for name in node.output if name not in known and name not in taken}
    return matches
