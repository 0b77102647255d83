"""A piece of the graph in onnx's ReferenceEvaluator, with our operators in place of its own."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from unpool.errors import UnpoolError, UnsupportedError
from unpool.runtime.bound import Meaning
from unpool.runtime.onnx_reference import new_ops


class ReferencePiece:
    """A loaded piece. The evaluator makes no promise about threads, so calls wait for each other."""

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
                f"got: {_words(error)}. Replace these nodes."
            ) from error

    def run(self, values: Sequence[Any], run_options: object) -> list[Any]:  # noqa: ARG002  one signature for all runners
        """Outputs in the order of the piece.

        Raises:
            UnpoolError: the evaluator could not run the piece on these values, or a node of ours refused them.
        """
        feed = dict(zip(self._inputs, values, strict=True))
        try:
            with self._lock, np.errstate(all="ignore"):
                made = self._evaluator.run(None, feed)
        except UnpoolError:
            raise
        except Exception as error:
            raise UnpoolError(
                f"{self._where}: onnx's ReferenceEvaluator cannot run it on these inputs: {_words(error)}. "
                "Correct the inputs or replace the node."
            ) from error
        return [_own(value, values) for value in made]


def _own(value: Any, inputs: Sequence[Any]) -> Any:
    """The value as an array of its own: some operators of the evaluator give a view of what they read."""
    if isinstance(value, np.ndarray) and (value.base is not None or any(value is one for one in inputs)):
        return value.copy()
    return value


def _words(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
