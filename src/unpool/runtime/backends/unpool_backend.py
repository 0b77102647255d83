"""Steps of one node that unpool runs."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import onnx

from unpool import execute
from unpool.dtypes import AnyArray
from unpool.errors import IndicesError, UnpoolError, UnsupportedError
from unpool.execute.normalization import Normalization
from unpool.execute.snake import Snake
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.resolve import Spec
from unpool.runtime.backends.step import Constants, RunOptions, Targets, Values, check_cancelled
from unpool.runtime.errors import as_onnxruntime
from unpool.runtime.graph.semantics import named

ERROR_CLASSES = {IndicesError: "InvalidArgument", UnsupportedError: "NotImplemented", UnpoolError: "Fail"}
"""Onnxruntime's error where a node refuses its values, by unpool's class."""

MAX_CALLS = 8  # prepared calls that a step keeps, one for each combination of shapes of its inputs


class NodeStep(ABC):
    """A node of unpool; `outputs` names the wanted ones."""

    def __init__(self, node: onnx.NodeProto, constants: Constants, outputs: Sequence[str]) -> None:
        self._node = node
        self._wanted = [list(node.output).index(name) for name in outputs]
        self._output_count = max(self._wanted) + 1
        self._fed = [name for name in dict.fromkeys(node.input) if name and name not in constants]

    def run(self, values: Values, run_options: RunOptions | None, targets: Targets | None = None) -> list[Any]:
        """The wanted outputs; a long call stops early when its options say so. An UnpoolError names the node."""
        if run_options is not None:
            check_cancelled(run_options)
            with execute.cancellation_scope(partial(check_cancelled, run_options)):
                return self.run(values, None, targets)
        try:
            outputs = self._compute(values, targets)
        except UnpoolError as error:
            raise as_onnxruntime(named(error, self._node), ERROR_CLASSES) from error
        return [outputs[position] for position in self._wanted]

    @abstractmethod
    def _compute(self, values: Values, targets: Targets | None) -> Sequence[Any]:
        """The first outputs of the node, wanted or not."""


class ComputationStep(NodeStep):
    """A computation that is no operator of unpool's."""

    def __init__(
        self,
        node: onnx.NodeProto,
        computation: Normalization | Snake,
        outputs: Sequence[str],
        threads: int | None,
    ) -> None:
        super().__init__(node, {}, outputs)
        self._computation, self._threads = computation, threads

    def _compute(self, values: Values, targets: Targets | None) -> Sequence[Any]:
        by_name = dict(zip(self._fed, values, strict=True))
        outs: list[Any] = [None] * len(self._node.output)
        for position, target in zip(self._wanted, targets or (), strict=False):
            outs[position] = target
        return self._computation.compute([by_name[name] for name in self._node.input], outs, self._threads)


class UnpoolStep(NodeStep):
    """A node that unpool runs on the CPU; `x_shape` has the known sizes of its first input."""

    def __init__(
        self,
        node: onnx.NodeProto,
        spec: Spec,
        constants: Constants,
        outputs: Sequence[str],
        threads: int | None,
        x_shape: Sequence[int | None] | None,
    ) -> None:
        super().__init__(node, constants, outputs)
        self._spec = spec
        self._threads = threads
        self._no_targets: tuple[AnyArray | None, ...] = (None,) * self._output_count
        self._calls: dict[Hashable, execute.PreparedCall] = {}
        self._depends_on_values = any(name and name not in constants for name in node.input[2:])
        fed = self._fed
        self._sources = [fed.index(name) if name in fed else constants.get(name) for name in node.input]
        sizes = tuple(size for size in x_shape or () if size is not None)
        if isinstance(spec, ConvTransposeSpec) and node.input[1] in constants and len(sizes) == len(x_shape or (None,)):
            with suppress(UnpoolError):  # raised again when the node runs
                execute.pack(spec, sizes, constants[node.input[1]])

    def _compute(self, values: Values, targets: Targets | None) -> Sequence[Any]:
        outputs = self._no_targets
        if targets is not None:
            by_position = dict(zip(self._wanted, targets, strict=True))
            outputs = tuple(by_position.get(position) for position in range(self._output_count))
        inputs = [values[source] if isinstance(source, int) else source for source in self._sources]
        key = tuple([(x.shape, x.dtype) for x in values])
        call = None if self._depends_on_values else self._calls.get(key)
        if call is None:
            call = execute.prepare(self._spec, inputs, self._output_count)
            if len(self._calls) >= MAX_CALLS:
                self._calls.clear()
            self._calls[key] = call
        return call.run(inputs, outputs, self._threads)
