"""A step of one node that unpool runs on a GPU."""

from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.execute import gpu
from unpool.operators.resolve import Spec
from unpool.runtime.errors import as_onnxruntime
from unpool.runtime.graph.node_contract import named
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.cuda_memory import CudaMemory
from unpool.runtime.runners.stopping import stop_if_told
from unpool.runtime.runners.unpool_step import ERROR_CLASSES

FIRST_ON_HOST = 2
"""Of MaxUnpool's inputs: `output_shape` decides how much memory is taken."""


class CudaStep:
    """A node of ours with its spec and its constant inputs, which are in the memory of the GPU from the start."""

    def __init__(
        self,
        node: onnx.NodeProto,
        spec: Spec,
        constants: Mapping[str, AnyArray],
        wanted: Sequence[str],
        memory: CudaMemory,
    ) -> None:
        self._node, self._spec, self._memory = node, spec, memory
        self._wanted = [list(node.output).index(name) for name in wanted]
        fed = [name for name in dict.fromkeys(node.input) if name and name not in constants]
        self._sources = [fed.index(name) if name in fed else None for name in node.input]
        self._moves = [
            memory.to_host if node.op_type == "MaxUnpool" and place >= FIRST_ON_HOST else memory.to_device
            for place in range(len(node.input))
        ]
        self._constants = [
            move(constants[name]) if name in constants else None
            for name, move in zip(node.input, self._moves, strict=True)
        ]

    def run(self, values: Sequence[Any], run_options: onnxruntime.RunOptions | None) -> list[Any]:
        """The wanted outputs in order, as tensors.

        Raises:
            UnpoolError: the values break the contract, and the message names the node; or the run was told to stop.
        """
        if run_options is not None:
            stop_if_told(run_options)
        outputs = max(self._wanted) + 1
        try:
            with self._memory.running():
                made = gpu.run(self._spec, self._inputs(values), outputs=outputs, check="now")
        except UnpoolError as error:
            raise as_onnxruntime(named(error, self._node), ERROR_CLASSES) from error
        return [made[position] for position in self._wanted]

    def _inputs(self, values: Sequence[Any]) -> list[Any]:
        return [
            constant if source is None else move(values[source])
            for source, move, constant in zip(self._sources, self._moves, self._constants, strict=True)
        ]
