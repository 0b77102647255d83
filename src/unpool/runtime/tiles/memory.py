"""A forecast of the memory of a run, from the shapes of all values and the plan.

A partition that onnxruntime runs keeps its memory for its next run, so partitions add up. Memory of unpool's outputs is
used again: outputs that are alive at the same time count, and blocks that are kept. Elementwise nodes overwrite their
input if no other node reads it. A Conv copies inputs from other steps into its own layout.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx

from unpool.memory import pool_limit
from unpool.runtime.graph.nodes import reads, writes
from unpool.runtime.plan.plan import Plan, Step
from unpool.runtime.tiles.rules.table import IN_PLACE

OVERHEAD_BYTES = 16 << 20
"""Memory in addition to the values: buffers of threads and allocators."""


@dataclass(frozen=True)
class RunSizes:
    """The sizes that a forecast adds up: nodes in the order of the plan's positions, and the bytes of every value."""

    nodes: Sequence[onnx.NodeProto]
    plan: Plan
    sizes: Mapping[str, int]

    def bytes(self, name: str) -> int:
        """Bytes of a value; 0 for constants and values that do not depend on the image."""
        return self.sizes.get(name, 0)


def run_bytes(values: RunSizes) -> int:
    """Peak memory of a run in bytes, without its inputs and the session."""
    partitions = sum(_partition_bytes(values, step) for step in values.plan.steps if step.runner != "unpool")
    return partitions + _own_bytes(values) + OVERHEAD_BYTES


def _partition_bytes(values: RunSizes, step: Step) -> int:
    """Peak memory of a partition, with its outputs."""
    nodes = [values.nodes[position] for position in step.nodes]
    last = _last_reads(nodes, step.outputs)
    alive = peak = 0
    for place, node in enumerate(nodes):
        dying = [name for name in reads(node) if last.get(name) == place and name not in step.inputs]
        made = sum(map(values.bytes, writes(node)))
        copied = sum(values.bytes(name) for name in node.input[:1] if node.op_type == "Conv" and name in step.inputs)
        freed = sum(map(values.bytes, dying))
        reused = min(made, freed) if node.op_type in IN_PLACE else 0
        peak = max(peak, alive + made - reused + copied)
        alive += made - freed
    return peak


def _own_bytes(values: RunSizes) -> int:
    """Peak memory of the outputs of unpool's steps, with blocks that are kept for the next run."""
    steps = values.plan.steps
    last = {name: place for place, step in enumerate(steps) for name in step.inputs}
    alive = peak = total = 0
    held: dict[str, int] = {}
    for place, step in enumerate(steps):
        if step.runner == "unpool":
            held |= {name: values.bytes(name) for name in step.outputs}
            total += sum(values.bytes(name) for name in step.outputs)
        alive = sum(held.values())
        peak = max(peak, alive)
        held = {name: size for name, size in held.items() if last.get(name, len(steps)) > place}
    return min(total, peak + pool_limit())


def _last_reads(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> dict[str, int]:
    """By value, the last node that reads it; outputs of the partition have none."""
    last = {name: place for place, node in enumerate(nodes) for name in reads(node)}
    return {name: place for name, place in last.items() if name not in outputs}
