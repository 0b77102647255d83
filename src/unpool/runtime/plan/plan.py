"""Makes the plan of a graph: which node runs where, why, and in which order; and cuts partitions out as models.

The nodes of one level that onnxruntime runs form one partition, so that branches share it:

    level(node) = max over its producers of level(producer) + 1 if unpool runs the producer, + 0 if not

A node that reads what the ReferenceEvaluator made is one level further too, unless the ReferenceEvaluator also runs it.
A node of onnxruntime that only later levels read moves to the first of these: in one partition onnxruntime fuses nodes,
such as a Conv and the Add after it, and keeps its own layout.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

import onnx
from onnx import helper

from unpool.display import table
from unpool.operators import contract
from unpool.operators.resolve import Spec
from unpool.runtime.graph.graph import FIRST_IR_WITH_DEFAULTS, Graph
from unpool.runtime.graph.nodes import (
    domain,
    is_unpool_op,
    node_name,
    reads,
    since_version,
    subgraphs,
    with_subgraph_nodes,
    writes,
)
from unpool.runtime.graph.shapes import Types
from unpool.runtime.graph.weights import without_folder
from unpool.runtime.plan.placement import NO_PROFIT, Assignment, RunnerName, assign_runner
from unpool.runtime.plan.subgraphs import has_unpool_subgraphs

TITLES = ("step", "node", "operator", "runs on", "why")
HOST = "cpu"  # the device of steps that are on no GPU
PARTITION_RUNTIMES = ("onnxruntime", "openvino")  # runners whose nodes `summarize` collapses into one line
NEWEST_NEEDED_IR = 10  # later ones add nothing that a partition holds, and older releases of onnxruntime refuse them
_ORDER: tuple[RunnerName, ...] = ("onnxruntime", "reference", "unpool")  # within one level


@dataclass(frozen=True)
class PlanRow:
    """One line of the plan: one node."""

    node: str  # its name, or `Operator->output` without one
    operator: str
    domain: str  # "" for ONNX
    version: int  # of the operator, as the model's opset selects it
    runner: RunnerName
    reason: str
    step: int  # position of the step that runs it
    level: int  # of its step, see the module
    subgraph_steps: tuple[int, ...] = ()  # of its step in the plan of each subgraph that it is in, outermost first
    device: str = HOST  # or such as "cuda:0", where a partition of onnxruntime may leave nodes to the CPU

    @property
    def place(self) -> str:
        """The positions of its steps, such as `3`, or `3.0` for the first step of a subgraph of the fourth step."""
        return ".".join(map(str, (self.step, *self.subgraph_steps)))

    @property
    def runs_on(self) -> str:
        """Who runs it and, where that is not on the CPU, the device: such as `unpool, cuda:0`."""
        return self.runner if self.device == HOST else f"{self.runner}, {self.device}"

    @property
    def operator_version(self) -> str:
        """Such as `MaxPool-12` or `MaxPool-12 (com.ms.internal.nhwc)`."""
        return f"{self.operator}-{self.version}" + (f" ({self.domain})" if self.domain else "")


class TableRow(NamedTuple):
    """One line of a table, under `TITLES`."""

    step: str
    node: str
    operator: str
    runner: str
    reason: str


def list_rows(rows: Iterable[PlanRow]) -> list[TableRow]:
    """A line per node."""
    return [TableRow(row.place, row.node, row.operator_version, row.runs_on, row.reason) for row in rows]


def summarize(rows: Iterable[PlanRow]) -> list[TableRow]:
    """A line per partition: how many nodes of which operators, and every reason once.

    >>> def conv(name):
    ...     return PlanRow(name, "Conv", "", 11, "onnxruntime", "no operator of unpool", 0, 0)
    >>> summarize([conv("a"), conv("b")])[0][1:3]
    ('2 nodes, a to b', '2 Conv')
    """
    lines = []
    for (place, runner), group in groupby(rows, lambda row: (row.place, row.runner)):
        partition = list(group)
        if runner not in PARTITION_RUNTIMES or len(partition) == 1:
            lines += list_rows(partition)
            continue
        counts = Counter(row.operator for row in partition).most_common()
        operators = ", ".join(f"{count} {operator}" for operator, count in counts)
        reasons = "; ".join(dict.fromkeys(row.reason for row in partition))
        nodes = f"{len(partition)} nodes, {partition[0].node} to {partition[-1].node}"
        lines.append(TableRow(place, nodes, operators, partition[0].runs_on, reasons))
    return lines


@dataclass(frozen=True)
class Step:
    """A unit of execution: one node of unpool, or a partition of the graph."""

    runner: RunnerName
    level: int  # see the module
    nodes: tuple[int, ...]  # positions in the graph
    inputs: tuple[str, ...]  # values it reads, constants left out
    outputs: tuple[str, ...]  # values it makes that a later step or the caller reads
    device: str = HOST


@dataclass(frozen=True)
class Plan:
    """Steps in execution order, and one record per node: iterating gives them, `print` shows a line for each."""

    steps: tuple[Step, ...]
    records: tuple[PlanRow, ...]

    def __iter__(self) -> Iterator[PlanRow]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __str__(self) -> str:
        return table(TITLES, list_rows(self))

    @property
    def summary(self) -> str:
        """The table with one line for all nodes of a step that onnxruntime or OpenVINO runs."""
        return table(TITLES, summarize(self))


def make_plan(
    graph: Graph,
    specs: Mapping[int, Spec],
    types: Types,
    *,
    exact: bool,
    refused: Mapping[int, str],
    device: str = HOST,
    has_unpool_ops: bool = False,
    assumes_sizes: bool = False,
) -> Plan:
    """The plan of a pruned graph; a single MaxPool is unpool's, as all are with `exact`.

    `specs` are those of unpool's nodes and `refused` why onnxruntime refuses nodes, by position. The partitions of
    onnxruntime are on `device`, with `has_unpool_ops` unpool's operators too; other nodes stay on the CPU. With
    `assumes_sizes` the windows of a MaxPool fit into sizes that are not known.
    """
    why_exact = "exact: unpool runs every MaxPool" if exact else "it is the only node" if len(graph.nodes) == 1 else ""
    choices = _choices(
        graph, specs, types, why_exact, refused, is_hosted=not has_unpool_ops, assumes_sizes=assumes_sizes
    )
    readers: dict[str, set[int]] = {}
    for position, node in enumerate(graph.nodes):
        for name in reads(node):
            readers.setdefault(name, set()).add(position)
    steps = []
    for step in _steps(graph, choices, _levels(graph, choices, readers), readers):
        is_op = step.runner == "unpool" and is_unpool_op(graph.nodes[step.nodes[0]])
        is_on_device = step.runner == "onnxruntime" or (has_unpool_ops and is_op)
        steps.append(replace(step, device=device) if is_on_device else step)
    records = [
        row
        for number, step in enumerate(steps)
        for position in step.nodes
        for row in _rows(graph, position, choices[position], number, step)
    ]
    return Plan(tuple(steps), tuple(records))


def with_openvino(plan: Plan, taken: Collection[int], refused: Mapping[int, str]) -> Plan:
    """The plan where OpenVINO runs the steps `taken` of onnxruntime; `refused` has the reasons for other steps."""
    steps = [replace(step, runner="openvino") if number in taken else step for number, step in enumerate(plan.steps)]
    records = []
    for row in plan.records:
        if row.step in taken:
            row = replace(row, runner="openvino", reason=row.reason.replace("onnxruntime's", "OpenVINO's"))
        elif refused.get(row.step):
            row = replace(row, reason=f"{row.reason}; not on OpenVINO: {refused[row.step]}")
        records.append(row)
    return Plan(tuple(steps), tuple(records))


def with_subgraphs(plan: Plan, inner: Mapping[int, Sequence[tuple[str, Plan]]]) -> Plan:
    """The plan with the rows of subgraphs after those of their nodes; by step, `inner` has their names and plans."""
    records: list[PlanRow] = []
    for outer in plan.records:
        records.append(outer)
        for name, subgraph in inner.get(outer.step, ()):
            where = f"inside {outer.operator} {outer.node!r}, {name}"
            for row in subgraph:
                steps, reason = (row.step, *row.subgraph_steps), f"{where}: {row.reason}"
                records.append(replace(row, reason=reason, step=outer.step, level=outer.level, subgraph_steps=steps))
    return replace(plan, records=tuple(records))


def _choices(
    graph: Graph,
    specs: Mapping[int, Spec],
    types: Types,
    exact: str,
    refused: Mapping[int, str],
    *,
    is_hosted: bool,
    assumes_sizes: bool,
) -> list[Assignment]:
    unpool_outputs: set[str] = set()
    choices = []
    for position, node in enumerate(graph.nodes):
        spec = specs.get(position)
        computation = graph.computations.get(next(iter(node.output), ""))
        if computation is not None:
            choice = Assignment("unpool", computation.reason)
        elif position in refused:
            is_known = spec is not None or has_unpool_subgraphs(node)
            choice = Assignment("unpool" if is_known else "reference", f"onnxruntime: {refused[position]}")
        elif not graph.left_to_onnxruntime.isdisjoint(node.output[:1]):
            choice = Assignment("onnxruntime", NO_PROFIT)
        else:
            is_after_unpool = not unpool_outputs.isdisjoint(node.input[:1])
            choice = assign_runner(
                node, spec, types, exact=exact, is_after_unpool=is_after_unpool, is_hosted=is_hosted,
                assumes_sizes=assumes_sizes,
            )  # fmt: skip
        choices.append(choice)
        unpool_outputs.update(writes(node) if choice.runner == "unpool" else ())
    return choices


def _levels(graph: Graph, choices: Sequence[Assignment], readers: Mapping[str, set[int]]) -> list[int]:
    made_at: dict[str, tuple[int, RunnerName]] = {}
    levels = []
    for node, choice in zip(graph.nodes, choices, strict=True):
        level = 0
        for before, runner in (made_at[name] for name in reads(node) if name in made_at):
            crosses = runner == "unpool" or (runner == "reference" and choice.runner != "reference")
            level = max(level, before + crosses)
        levels.append(level)
        made_at |= dict.fromkeys(writes(node), (level, choice.runner))
    results = frozenset(graph.output_names)
    for position in reversed(range(len(levels))):
        outputs = writes(graph.nodes[position])
        consumers = {reader for name in outputs for reader in readers.get(name, ())}
        is_inner = consumers and results.isdisjoint(outputs)
        if is_inner and all(choices[place].runner == "onnxruntime" for place in (position, *consumers)):
            levels[position] = min(levels[place] for place in consumers)
    return levels


def _steps(
    graph: Graph, choices: Sequence[Assignment], levels: Sequence[int], readers: Mapping[str, set[int]]
) -> Iterator[Step]:
    groups: dict[tuple[int, int, int], list[int]] = {}
    for position, (choice, level) in enumerate(zip(choices, levels, strict=True)):
        own_step = position if choice.runner == "unpool" else -1
        groups.setdefault((level, _ORDER.index(choice.runner), own_step), []).append(position)
    results = frozenset(graph.output_names)
    for (level, runner, _), nodes in sorted(groups.items()):
        own = dict.fromkeys(name for position in nodes for name in writes(graph.nodes[position]))
        read = dict.fromkeys(name for position in nodes for name in reads(graph.nodes[position]))
        known = (own, graph.constants, graph.sparse_constants)
        inputs = [name for name in read if not any(name in names for names in known)]
        members = frozenset(nodes)
        outputs = [name for name in own if name in results or not members.issuperset(readers.get(name, ()))]
        yield Step(_ORDER[runner], level, tuple(nodes), tuple(inputs), tuple(outputs))


def _rows(graph: Graph, position: int, choice: Assignment, number: int, step: Step) -> Iterator[PlanRow]:
    node = graph.nodes[position]
    fused_names = graph.folded_nodes.get(node.output[0], ())
    origin = graph.origins.get(node.output[0], "")
    reasons = [choice.reason, origin, *([f"with {', '.join(fused_names)} folded in"] if fused_names else [])]
    yield _row(graph, node, choice.runner, "; ".join(filter(None, reasons)), number, step)
    for name, subgraph in subgraphs(node) if choice.runner == "reference" else ():
        for inner in with_subgraph_nodes(subgraph.node):
            if is_unpool_op(inner):
                yield _row(graph, inner, "unpool", f"inside {node.op_type} {node_name(node)!r}, {name}", number, step)


def _row(graph: Graph, node: onnx.NodeProto, runner: RunnerName, reason: str, number: int, step: Step) -> PlanRow:
    where = domain(node)
    version = since_version(node, graph.opsets[where])
    if is_unpool_op(node):
        version = contract.row(node.op_type, where, graph.opsets[where]).since_version or version
    return PlanRow(
        node_name(node), node.op_type, where, version, runner, reason, number, step.level, device=step.device
    )


def cut(
    graph: Graph, step: Step, types: Types, tensor: Callable[[onnx.TensorProto], onnx.TensorProto] = without_folder
) -> onnx.ModelProto:
    """The model of a partition, whose inputs and outputs are the step's, in order.

    `types` have no size that could be wrong, because onnxruntime checks it; an input of unknown type has no type.
    `tensor` gives the partition's tensor for a constant: weights in files stay there, or come with their data.
    """
    fed = {value.name: value for value in graph.inputs}
    nodes = [graph.nodes[position] for position in step.nodes]
    domains = {"", *map(domain, with_subgraph_nodes(nodes))}
    version = min(max(graph.ir_version, FIRST_IR_WITH_DEFAULTS), NEWEST_NEEDED_IR)
    model = onnx.ModelProto(ir_version=version, producer_name="unpool")
    model.opset_import.extend(helper.make_opsetid(*pair) for pair in graph.opsets.items() if pair[0] in domains)
    partition = model.graph
    partition.name = "partition"
    partition.node.extend(nodes)
    partition.input.extend(
        fed.get(name) or onnx.ValueInfoProto(name=name, type=types.get(name)) for name in step.inputs
    )
    partition.output.extend(onnx.ValueInfoProto(name=name) for name in step.outputs)
    for name in dict.fromkeys(name for node in nodes for name in reads(node)):
        if name in graph.constants:
            partition.initializer.append(tensor(graph.constants[name]))
            partition.initializer[-1].name = name
        elif name in graph.sparse_constants:
            partition.sparse_initializer.append(graph.sparse_constants[name])
            partition.sparse_initializer[-1].values.name = name
    return model


def at_oldest_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    """The partition with the oldest opsets that select the same operators; onnxruntime refuses opsets after its own."""
    copy = deepcopy(model)
    for entry in copy.opset_import:
        nodes = (node for node in with_subgraph_nodes(copy.graph.node) if domain(node) == entry.domain)
        entry.version = max((since_version(node, entry.version) for node in nodes), default=1)
    return copy


def single_node_step(graph: Graph, position: int) -> Step:
    """A step that runs a single node, for asking whether onnxruntime knows it."""
    node = graph.nodes[position]
    known = {*graph.constants, *graph.sparse_constants}
    return Step("onnxruntime", 0, (position,), tuple(n for n in reads(node) if n not in known), writes(node))
