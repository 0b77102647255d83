"""One node of ours, ready to run."""

from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import onnx

from unpool import execute
from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.resolve import Spec
from unpool.runtime.bound import named

KEPT_CALLS = 8
"""So many shapes of inputs find what was worked out for them."""


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
        self._outputs = max(self._wanted) + 1
        self._targets = (None,) * self._outputs
        self._calls: dict[Hashable, execute.Prepared] = {}
        self._depends_on_values = any(name and name not in constants for name in node.input[2:])
        self._prepare(x_shape)
        fed = [name for name in dict.fromkeys(node.input) if name and name not in constants]
        self._sources = [fed.index(name) if name in fed else self._constants.get(name) for name in node.input]

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
        inputs = [values[source] if isinstance(source, int) else source for source in self._sources]
        try:
            outputs = self._call(inputs, values).run(inputs, self._targets, self._threads)
        except UnpoolError as error:
            raise named(error, self._node) from error
        return [outputs[position] for position in self._wanted]

    def _call(self, inputs: Sequence[AnyArray | None], fed: Sequence[AnyArray]) -> execute.Prepared:
        """The call for inputs of these shapes and types; not kept where it depends on the third input's value."""
        key = tuple([(x.shape, x.dtype) for x in fed])
        found = None if self._depends_on_values else self._calls.get(key)
        if found is None:
            found = execute.prepare(self._spec, inputs, self._outputs)
            if len(self._calls) >= KEPT_CALLS:
                self._calls.clear()
            self._calls[key] = found
        return found
