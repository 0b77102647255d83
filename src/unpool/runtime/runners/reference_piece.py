"""A piece of the graph that onnx's ReferenceEvaluator runs, with our operators in place of its own."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from unpool.errors import UnpoolError, UnsupportedError
from unpool.runtime.errors import also
from unpool.runtime.graph.boundary import one_line
from unpool.runtime.graph.node_contract import Meaning
from unpool.runtime.onnx_reference import new_ops
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.stopping import stop_if_told


class ReferencePiece:
    """A loaded piece. The evaluator does not promise to be safe in several threads, so one call waits for the other."""

    def __init__(self, model: onnx.ModelProto, where: str, meaning: Meaning, threads: int | None) -> None:
        self._where = where
        self._lock = threading.Lock()
        self._inputs = [value.name for value in model.graph.input]
        opset = next((one.version for one in model.opset_import if one.domain == ""), 0)
        ours = new_ops(opset, compat=meaning.compat, index_space=meaning.index_space, threads=threads)
        try:
            self._evaluator = ReferenceEvaluator(model, new_ops=ours)
        except UnpoolError:
            raise
        except Exception as error:
            raise UnsupportedError(
                f"{where}: expected operators that onnxruntime or onnx's ReferenceEvaluator can run, "
                f"got: {one_line(error)}. Replace these nodes."
            ) from error

    def run(self, values: Sequence[Any], run_options: onnxruntime.RunOptions | None) -> list[Any]:
        """Outputs in the order of the piece.

        Raises:
            UnpoolError: the evaluator could not run the piece on these values, or a node of ours refused them; or the
                run was told to stop before.
        """
        if run_options is not None:
            stop_if_told(run_options)
        feed = dict(zip(self._inputs, values, strict=True))
        try:
            with self._lock, np.errstate(all="ignore"):
                made = self._evaluator.run(None, feed)
        except UnpoolError:
            raise
        except Exception as error:
            raise also(UnpoolError, "Fail")(
                f"{self._where}: onnx's ReferenceEvaluator cannot run it on these inputs: {one_line(error)}. "
                "Correct the inputs or replace the node."
            ) from error
        return [_own(value, values) for value in made]


def _own(value: Any, inputs: Sequence[Any]) -> Any:
    """The value as an array of its own: some operators of the evaluator give a view of what they read."""
    if isinstance(value, np.ndarray) and (value.base is not None or any(value is one for one in inputs)):
        return value.copy()
    return value
