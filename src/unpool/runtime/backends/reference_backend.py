"""Partitions that onnx's ReferenceEvaluator runs, with unpool's operators in place of its own."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from unpool.errors import UnpoolError, UnsupportedError
from unpool.runtime.backends.step import Partition, RunOptions, Targets, Values
from unpool.runtime.errors import error_class
from unpool.runtime.graph.errors import one_line
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.graph.torch_operators import export_advice
from unpool.runtime.onnx_reference import new_ops


class ReferencePartition(Partition):
    """A loaded partition, which runs in one thread at a time: the evaluator promises no more."""

    def __init__(self, model: onnx.ModelProto, where: str, semantics: Semantics, threads: int | None) -> None:
        super().__init__(where)
        self._lock = threading.Lock()
        self._inputs = [value.name for value in model.graph.input]
        opset = next((entry.version for entry in model.opset_import if entry.domain == ""), 0)
        operators = new_ops(opset, compat=semantics.compat, index_space=semantics.index_space, threads=threads)
        try:
            self._evaluator = ReferenceEvaluator(model, new_ops=operators)
        except UnpoolError:
            raise
        except Exception as error:
            raise UnsupportedError(
                f"{where}: neither onnxruntime nor onnx's ReferenceEvaluator can run it: {one_line(error)}. "
                f"{export_advice(model.graph.node, 'Replace these nodes.')}"
            ) from error

    def _run(self, values: Values, run_options: RunOptions | None, targets: Targets | None) -> list[Any]:  # noqa: ARG002
        with self._lock, np.errstate(all="ignore"):
            outputs = self._evaluator.run(None, dict(zip(self._inputs, values, strict=True)))
        return [_own(value, values) for value in outputs]

    def _run_error(self, error: Exception) -> UnpoolError:
        return error_class(UnpoolError, "Fail")(
            f"{self._where}: onnx's ReferenceEvaluator cannot run it on these inputs: {one_line(error)}. "
            "Change the inputs or replace the node."
        )


def _own(value: Any, inputs: Sequence[Any]) -> Any:
    """The value as an array of its own: some operators of the evaluator return a view of an input."""
    if isinstance(value, np.ndarray) and (value.base is not None or any(value is x for x in inputs)):
        return value.copy()
    return value
