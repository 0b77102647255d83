"""One node of ours, ready to run."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import onnx

from unpool import execute, functional
from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.resolve import Spec
from unpool.runtime.bound import naming


class OurNode:
    """A node with its spec and its constant inputs; `x_shape` is what is known of its first input."""

    def __init__(
        self,
        node: onnx.NodeProto,
        spec: Spec,
        constants: Mapping[str, AnyArray],
        wanted: Sequence[str],
        threads: int | None,
        x_shape: tuple[int | None, ...] | None,
    ) -> None:
        self._node = node
        self._spec = spec
        self._constants = {name: constants[name] for name in node.input if name in constants}
        self._wanted = [list(node.output).index(name) for name in wanted]
        self._threads = threads
        self._prepare(x_shape)
        self._fed = [name for name in dict.fromkeys(node.input) if name and name not in constants]

    def _prepare(self, x_shape: tuple[int | None, ...] | None) -> None:
        """Pack constant weights where the shape of X is known; what is wrong with them is said when the node runs."""
        w = self._constants.get(self._node.input[1]) if isinstance(self._spec, ConvTransposeSpec) else None
        sizes = tuple(size for size in x_shape or () if size is not None)
        if isinstance(self._spec, ConvTransposeSpec) and w is not None and len(sizes) == len(x_shape or (None,)):
            with suppress(UnpoolError):
                execute.pack(self._spec, sizes, w)

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
