"""One node of ours, ready to run."""

from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from unpool import functional
from unpool.dtypes import AnyArray
from unpool.operators.resolve import Spec
from unpool.runtime.bound import naming


class OurNode:
    """A node with its spec and its constant inputs."""

    def __init__(
        self,
        node: onnx.NodeProto,
        spec: Spec,
        constants: Mapping[str, AnyArray],
        wanted: Sequence[str],
        threads: int | None,
    ) -> None:
        self._node = node
        self._spec = spec
        self._constants = {name: constants[name] for name in node.input if name in constants}
        self._wanted = [list(node.output).index(name) for name in wanted]
        self._threads = threads
        self._fed = [name for name in dict.fromkeys(node.input) if name and name not in constants]

    def run(self, values: Sequence[Any], run_options: object) -> list[AnyArray]:  # noqa: ARG002  one signature for all
        """The wanted outputs in order.

        Raises:
            UnpoolError: the values break the contract; the message names the node.
        """
        known = {**self._constants, **dict(zip(self._fed, values, strict=True))}
        inputs = [known[name] if name else None for name in self._node.input]
        with naming(self._node):
            outputs = functional.run(self._spec, inputs, outputs=max(self._wanted) + 1, threads=self._threads)
        return [outputs[position] for position in self._wanted]
