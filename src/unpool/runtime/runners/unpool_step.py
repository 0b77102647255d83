"""A step of one node that unpool runs."""

from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import onnx

from unpool import execute
from unpool.dtypes import AnyArray
from unpool.errors import IndicesError, UnpoolError, UnsupportedError
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.resolve import Spec
from unpool.runtime.errors import as_onnxruntime
from unpool.runtime.graph.node_contract import named
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.stopping import stop_if_told

ERROR_CLASSES = {IndicesError: "InvalidArgument", UnsupportedError: "NotImplemented", UnpoolError: "Fail"}
"""What onnxruntime raises where a node refuses its values, by our classes."""

KEPT_CALLS = 8
"""Prepared calls that a step keeps, one for each combination of shapes of its inputs."""


class UnpoolStep:
    """A node of ours with its spec and its constant inputs; `x_shape` has the known sizes of its first input."""

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
        self._targets: tuple[AnyArray | None, ...] = (None,) * self._outputs
        self._calls: dict[Hashable, execute.PreparedCall] = {}
        self._depends_on_values = any(name and name not in constants for name in node.input[2:])
        self._prepare(x_shape)
        fed = [name for name in dict.fromkeys(node.input) if name and name not in constants]
        self._sources = [fed.index(name) if name in fed else self._constants.get(name) for name in node.input]

    def _prepare(self, x_shape: tuple[int | None, ...] | None) -> None:
        """Pack constant weights, if the shape of X is known; an error in them is raised only when the node runs."""
        w = self._constants.get(self._node.input[1]) if isinstance(self._spec, ConvTransposeSpec) else None
        sizes = tuple(size for size in x_shape or () if size is not None)
        if isinstance(self._spec, ConvTransposeSpec) and w is not None and len(sizes) == len(x_shape or (None,)):
            with suppress(UnpoolError):
                execute.pack(self._spec, sizes, w)

    def run(
        self,
        values: Sequence[Any],
        run_options: onnxruntime.RunOptions | None,
        targets: Sequence[AnyArray | None] | None = None,
    ) -> list[AnyArray]:
        """The wanted outputs in order; a long call is left in the middle when its options say so.

        Args:
            values: the inputs that are no constants.
            run_options: of the caller.
            targets: for every wanted output, where to write it; None where memory of its own is to be taken.

        Raises:
            UnpoolError: the values break the contract, and the message names the node; or the run was told to stop.
        """
        places = self._targets if targets is None else self._places(targets)
        if run_options is None:
            return self._run(values, places)
        stop_if_told(run_options)
        with execute.cancellation_scope(partial(stop_if_told, run_options)):
            return self._run(values, places)

    def _places(self, targets: Sequence[AnyArray | None]) -> tuple[AnyArray | None, ...]:
        """Where to write each output, wanted or not."""
        by_position = dict(zip(self._wanted, targets, strict=True))
        return tuple(by_position.get(position) for position in range(self._outputs))

    def _run(self, values: Sequence[Any], places: Sequence[AnyArray | None]) -> list[AnyArray]:
        inputs = [values[source] if isinstance(source, int) else source for source in self._sources]
        try:
            outputs = self._call(inputs, values).run(inputs, places, self._threads)
        except UnpoolError as error:
            raise as_onnxruntime(named(error, self._node), ERROR_CLASSES) from error
        return [outputs[position] for position in self._wanted]

    def _call(self, inputs: Sequence[AnyArray | None], fed: Sequence[AnyArray]) -> execute.PreparedCall:
        """The prepared call for inputs of these shapes and types; it is not kept if it depends on a fed value."""
        key = tuple([(x.shape, x.dtype) for x in fed])
        found = None if self._depends_on_values else self._calls.get(key)
        if found is None:
            found = execute.prepare(self._spec, inputs, self._outputs)
            if len(self._calls) >= KEPT_CALLS:
                self._calls.clear()
            self._calls[key] = found
        return found
