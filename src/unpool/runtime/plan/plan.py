"""Makes the plan of a graph: which node runs where, why, and in which order. Nothing is loaded here.

The nodes of one level that onnxruntime runs form one partition, so that branches share it:

    level(node) = max over its producers of level(producer) + 1 if unpool runs the producer, + 0 if not

A node that reads what the ReferenceEvaluator made is one level further too, unless the ReferenceEvaluator also runs it.
A node of onnxruntime that only later levels read moves to the first of these: in one partition onnxruntime fuses nodes,
such as a Conv and the Add behind it, and keeps its own layout.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx

from unpool.operators import contract
from unpool.operators.resolve import Spec
from unpool.runtime.graph.graph import Graph
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
from unpool.runtime.plan.placement import Assignment, RunnerName, assign_runner
from unpool.runtime.plan.subgraphs import has_unpool_subgraphs
from unpool.runtime.plan.table import HOST, TITLES, PlanRow, list_rows, summarize
from unpool.runtime.table import table

_ORDER: tuple[RunnerName, ...] = ("onnxruntime", "reference", "unpool")  # within one level


@dataclass(frozen=True)
class Step:
    """A unit of execution: one node of unpool, or a partition of the graph.

    Attributes:
        runner: who runs it.
        level: see the module.
        nodes: positions in the graph.
        inputs: values it reads, constants left out.
        outputs: values it makes that a later step or the caller reads.
        device: as of its records.
    """

    runner: RunnerName
    level: int
    nodes: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    device: str = HOST


@dataclass(frozen=True)
class Plan:
    """Steps in execution order, and one record per node. Iterating over a plan gives the records, `print` a table.

    `print` shows a line per node, as `unpool inspect --all` does, and `print(plan.summary)` a line per step.
    """

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
) -> Plan:
    """The plan of a graph.

    Args:
        graph: pruned, so that every node is needed.
        specs: for the position of each node of ours, its spec.
        types: what is known of the values.
        exact: whether unpool runs every MaxPool; it does so too when the graph is a single node.
        refused: by the position of each node that onnxruntime refuses, the reason that it gives.
        device: of the partitions of onnxruntime; control flow and other nodes stay on the CPU.
        has_unpool_ops: whether our operators run there too.
    """
    why_exact = "exact: unpool runs every MaxPool" if exact else ""
    if len(graph.nodes) == 1:
        why_exact = why_exact or "it is the only node"
    is_hosted = not has_unpool_ops
    choices, readers = _choices(graph, specs, types, why_exact, refused, is_hosted=is_hosted), _readers(graph)
    steps = _steps(graph, choices, _levels(graph, choices, readers), readers)
    steps = [replace(step, device=device) if _leaves(step, graph, has_unpool_ops) else step for step in steps]
    records = [
        replace(record, device=step.device)
        for number, step in enumerate(steps)
        for position in step.nodes
        for record in _records(graph, position, choices[position], number, step.level)
    ]
    return Plan(tuple(steps), tuple(records))


def with_openvino(plan: Plan, taken: Collection[int], left: Mapping[int, str]) -> Plan:
    """The plan where OpenVINO runs some of the partitions.

    Args:
        plan: in which onnxruntime has them all.
        taken: the steps that OpenVINO runs.
        left: by the steps that stay with onnxruntime, the reason.
    """
    steps = [replace(step, runner="openvino") if number in taken else step for number, step in enumerate(plan.steps)]
    records = [_by_openvino(one, one.step in taken, left.get(one.step, "")) for one in plan.records]
    return Plan(tuple(steps), tuple(records))


def _by_openvino(record: PlanRow, is_taken: bool, why_not: str) -> PlanRow:
    if is_taken:
        return replace(record, runner="openvino", reason=record.reason.replace("onnxruntime's", "OpenVINO's"))
    return replace(record, reason=f"{record.reason}; not on OpenVINO: {why_not}") if why_not else record


def with_bodies(plan: Plan, inner: Mapping[int, Sequence[tuple[str, Plan]]]) -> Plan:
    """The plan with the records of the subgraphs of some nodes behind those of the nodes.

    Args:
        plan: of the graph around.
        inner: by the step of such a node, the name and the plan of each of its subgraphs.
    """
    records: list[PlanRow] = []
    for record in plan.records:
        records.append(record)
        for name, subgraph in inner.get(record.step, ()):
            records.extend(_inside(record, name, one) for one in subgraph)
    return replace(plan, records=tuple(records))


def _inside(control_flow: PlanRow, subgraph: str, record: PlanRow) -> PlanRow:
    """The record of a node in a subgraph, as the plan around says it."""
    reason = f"inside {control_flow.operator} {control_flow.node!r}, {subgraph}: {record.reason}"
    steps = (record.step, *record.subgraph_steps)
    return replace(record, reason=reason, step=control_flow.step, level=control_flow.level, subgraph_steps=steps)


def _leaves(step: Step, graph: Graph, has_unpool_ops: bool) -> bool:
    """True if a step runs where the partitions of onnxruntime run."""
    is_node = step.runner == "unpool" and is_unpool_op(graph.nodes[step.nodes[0]])
    return step.runner == "onnxruntime" or (has_unpool_ops and is_node)


def _choices(
    graph: Graph, specs: Mapping[int, Spec], types: Types, exact: str, refused: Mapping[int, str], *, is_hosted: bool
) -> list[Assignment]:
    unpool_outputs: set[str] = set()
    choices = []
    for position, node in enumerate(graph.nodes):
        spec = specs.get(position)
        if position in refused:
            is_known = spec is not None or has_unpool_subgraphs(node)
            choice = Assignment("unpool" if is_known else "reference", f"onnxruntime: {refused[position]}")
        else:
            is_after_unpool = not unpool_outputs.isdisjoint(node.input[:1])
            choice = assign_runner(node, spec, types, exact=exact, is_after_unpool=is_after_unpool, is_hosted=is_hosted)
        choices.append(choice)
        unpool_outputs.update(writes(node) if choice.runner == "unpool" else ())
    return choices


def _readers(graph: Graph) -> Mapping[str, set[int]]:
    """The positions of the nodes that read each value."""
    readers: dict[str, set[int]] = {}
    for position, node in enumerate(graph.nodes):
        for name in reads(node):
            readers.setdefault(name, set()).add(position)
    return readers


def _levels(graph: Graph, choices: Sequence[Assignment], readers: Mapping[str, set[int]]) -> list[int]:
    made_at: dict[str, tuple[int, RunnerName]] = {}
    asked = frozenset(graph.output_names)
    levels = []
    for node, choice in zip(graph.nodes, choices, strict=True):
        producers = [made_at[name] for name in reads(node) if name in made_at]
        level = max((before + _crossing(runner, choice.runner) for before, runner in producers), default=0)
        levels.append(level)
        made_at |= dict.fromkeys(writes(node), (level, choice.runner))
    for position in reversed(range(len(levels))):
        made = writes(graph.nodes[position])
        behind = {reader for name in made for reader in readers.get(name, ())}
        is_inner = behind and asked.isdisjoint(made)
        if is_inner and all(choices[one].runner == "onnxruntime" for one in (position, *behind)):
            levels[position] = min(levels[one] for one in behind)
    return levels


def _crossing(producer: RunnerName, consumer: RunnerName) -> int:
    return int(producer == "unpool" or (producer == "reference" and consumer != "reference"))


def _steps(
    graph: Graph, choices: Sequence[Assignment], levels: Sequence[int], readers: Mapping[str, set[int]]
) -> list[Step]:
    groups: dict[tuple[int, int, int], list[int]] = {}
    for position, (choice, level) in enumerate(zip(choices, levels, strict=True)):
        alone = position if choice.runner == "unpool" else -1
        groups.setdefault((level, _ORDER.index(choice.runner), alone), []).append(position)
    asked = frozenset(graph.output_names)
    return [
        _step(graph, readers, asked, Step(choices[nodes[0]].runner, key[0], tuple(nodes), (), ()))
        for key, nodes in sorted(groups.items())
    ]


def _step(graph: Graph, readers: Mapping[str, set[int]], asked: frozenset[str], step: Step) -> Step:
    """The step with its inputs and outputs."""
    nodes = frozenset(step.nodes)
    made = [name for position in step.nodes for name in writes(graph.nodes[position])]
    own = frozenset(made)
    read = dict.fromkeys(name for position in step.nodes for name in reads(graph.nodes[position]))
    constants = (graph.constants, graph.sparse_constants)
    inputs = [name for name in read if name not in own and not any(name in one for one in constants)]
    outputs = [name for name in made if name in asked or not nodes.issuperset(readers.get(name, ()))]
    return replace(step, inputs=tuple(inputs), outputs=tuple(outputs))


def _records(graph: Graph, position: int, choice: Assignment, step: int, level: int) -> Iterator[PlanRow]:
    node = graph.nodes[position]
    fused_names = graph.folded_nodes.get(node.output[0], ())
    raised = graph.origins.get(node.output[0], "")
    reasons = [choice.reason, raised, *([f"with {', '.join(fused_names)} folded in"] if fused_names else [])]
    yield _record(graph, node, choice.runner, "; ".join(filter(None, reasons)), step, level)
    for name, subgraph in subgraphs(node) if choice.runner == "reference" else ():
        for inner in with_subgraph_nodes(subgraph.node):
            if is_unpool_op(inner):
                yield _record(graph, inner, "unpool", f"inside {node.op_type} {node_name(node)!r}, {name}", step, level)


def _record(graph: Graph, node: onnx.NodeProto, runner: RunnerName, reason: str, step: int, level: int) -> PlanRow:
    where = domain(node)
    version = since_version(node, graph.opsets[where])
    if is_unpool_op(node):
        version = contract.row(node.op_type, where, graph.opsets[where]).since_version or version
    return PlanRow(node_name(node), node.op_type, where, version, runner, reason, step, level)
