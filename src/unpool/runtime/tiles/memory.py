"""A forecast of the memory of a run, from the shapes of all values and the plan.

A partition that onnxruntime runs keeps its memory for its next run, so partitions add up. Memory of unpool's outputs is
used again: outputs that are alive at the same time count, and blocks that are kept. Elementwise nodes overwrite their
input if no other node reads it. A Conv copies inputs from other steps into its own layout.
"""

from collections import Counter
from collections.abc import Sequence

import onnx

from unpool.memory import pool_limit
from unpool.runtime.graph.nodes import reads, writes
from unpool.runtime.plan.plan import Plan, Step
from unpool.runtime.tiles.rules.table import IN_PLACE

OVERHEAD_BYTES = 16 << 20
"""Memory in addition to the values: buffers of threads and allocators."""


def run_bytes(nodes: Sequence[onnx.NodeProto], plan: Plan, sizes: Counter[str]) -> int:
    """Peak memory of a run in bytes, without its inputs and the session.

    Args:
        nodes: in the order of the plan's positions.
        plan: of the session.
        sizes: bytes by value; 0 for constants and values that do not depend on the image.
    """
    partitions = sum(_partition_bytes(nodes, step, sizes) for step in plan.steps if step.runner != "unpool")
    return partitions + _own_bytes(plan.steps, sizes) + OVERHEAD_BYTES


def _partition_bytes(nodes: Sequence[onnx.NodeProto], step: Step, sizes: Counter[str]) -> int:
    """Peak memory of a partition, with its outputs."""
    own = [nodes[position] for position in step.nodes]
    last_read = {name: place for place, node in enumerate(own) for name in reads(node)}
    kept = {*step.inputs, *step.outputs}
    alive = peak = 0
    for place, node in enumerate(own):
        written = sum(sizes[name] for name in writes(node))
        copied = sum(sizes[name] for name in node.input[:1] if node.op_type == "Conv" and name in step.inputs)
        freed = sum(sizes[name] for name in reads(node) if last_read[name] == place and name not in kept)
        reused = min(written, freed) if node.op_type in IN_PLACE else 0
        peak = max(peak, alive + written - reused + copied)
        alive += written - freed
    return peak


def _own_bytes(steps: Sequence[Step], sizes: Counter[str]) -> int:
    """Peak memory of the outputs of unpool's steps, with blocks that are kept for the next run."""
    last_read = {name: place for place, step in enumerate(steps) for name in step.inputs}
    peak = total = 0
    held: dict[str, int] = {}
    for place, step in enumerate(steps):
        if step.runner == "unpool":
            held |= {name: sizes[name] for name in step.outputs}
            total += sum(sizes[name] for name in step.outputs)
        peak = max(peak, sum(held.values()))
        held = {name: size for name, size in held.items() if last_read.get(name, len(steps)) > place}
    return min(total, peak + pool_limit())
