"""The plan as rows: one per node, or one per step."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from unpool.runtime.plan.placement import RunnerName

TITLES = ("step", "node", "operator", "runs on", "why")
HOST = "cpu"
"""The device of steps that are on no GPU."""

PARTITION_RUNTIMES = ("onnxruntime", "openvino")
"""Runners whose nodes are folded; each node of ours, and each that onnx's ReferenceEvaluator runs, keeps its line."""


@dataclass(frozen=True)
class PlanRow:
    """One line of the plan: one node.

    Attributes:
        node: its name, or `Operator->output` without one.
        operator: its type.
        domain: "" for ONNX.
        version: of the operator, as the model's opset selects it.
        runner: "unpool", "onnxruntime", "openvino" or "reference".
        reason: why.
        step: position of the step that runs it.
        level: of its step, see the module.
        subgraph_steps: for a node in a subgraph, the position of the step in the plan of that subgraph; nested
            subgraphs have one each, the outermost first.
        device: that it runs on, "cpu" or such as "cuda:0"; a partition of onnxruntime there may leave nodes to the CPU.
    """

    node: str
    operator: str
    domain: str
    version: int
    runner: RunnerName
    reason: str
    step: int
    level: int
    subgraph_steps: tuple[int, ...] = ()
    device: str = HOST

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
    """One line of a table; what stands under `TITLES`."""

    step: str
    node: str
    operator: str
    runner: str
    reason: str


def list_rows(records: Iterable[PlanRow]) -> list[TableRow]:
    """A line per node."""
    return [TableRow(one.place, one.node, one.operator_version, one.runs_on, one.reason) for one in records]


def summarize(records: Iterable[PlanRow]) -> list[TableRow]:
    """A line per partition: how many nodes of which operators, and every reason once.

    >>> def conv(name):
    ...     return PlanRow(name, "Conv", "", 11, "onnxruntime", "no operator of unpool", 0, 0)
    >>> summarize([conv("a"), conv("b")])[0][1:3]
    ('2 nodes, a to b', '2 Conv')
    """
    lines = []
    for (_, runner), group in groupby(records, lambda one: (one.place, one.runner)):
        partition = list(group)
        lines += (
            [_summary_row(partition)] if runner in PARTITION_RUNTIMES and len(partition) > 1 else list_rows(partition)
        )
    return lines


def _summary_row(partition: Sequence[PlanRow]) -> TableRow:
    counts = Counter(one.operator for one in partition).most_common()
    operators = ", ".join(f"{count} {operator}" for operator, count in counts)
    reasons = "; ".join(dict.fromkeys(one.reason for one in partition))
    nodes = f"{len(partition)} nodes, {partition[0].node} to {partition[-1].node}"
    return TableRow(partition[0].place, nodes, operators, partition[0].runs_on, reasons)
