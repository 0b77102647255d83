"""A piece of the graph in onnxruntime."""

import ctypes
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
from onnx import TensorProto

from unpool.errors import UnpoolError
from unpool.runtime.ort_options import Providers

BFLOAT16 = "tensor(bfloat16)"


class RefusedError(Exception):
    """onnxruntime does not load a piece; `may_be_invalid` unless it only says that a kernel is not implemented."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(short(cause))
        self.may_be_invalid = type(cause).__name__ != "NotImplemented"


class OrtPiece:
    """A loaded piece: arrays in, arrays out, without copies. bfloat16, which NumPy lacks, travels as OrtValue."""

    def __init__(
        self,
        model: bytes,
        where: str,
        options: onnxruntime.SessionOptions,
        providers: Providers,
    ) -> None:
        names, settings = list(providers.names), list(providers.options)
        try:
            self._session = onnxruntime.InferenceSession(model, options, names, settings)
        except Exception as error:
            raise RefusedError(error) from error
        self._where = where
        self._inputs = [one.name for one in self._session.get_inputs()]
        self._outputs = [one.name for one in self._session.get_outputs()]
        ends = (*self._session.get_inputs(), *self._session.get_outputs())
        self._has_bfloat16 = any(one.type == BFLOAT16 for one in ends)

    @property
    def output_types(self) -> dict[str, str]:
        """Onnxruntime's name of the type of each output, such as `tensor(float)`."""
        return {one.name: one.type for one in self._session.get_outputs()}

    def run(self, values: Sequence[Any], run_options: onnxruntime.RunOptions | None) -> list[Any]:
        """Outputs in the order of the piece.

        Raises:
            UnpoolError: onnxruntime could not run the piece on these values.
        """
        feed = dict(zip(self._inputs, values, strict=True))
        try:
            if self._has_bfloat16:
                return self._run_as_ort_values(feed, run_options)
            return list(self._session.run(self._outputs, feed, run_options))
        except Exception as error:
            raise UnpoolError(f"{self._where}: onnxruntime cannot run it on these inputs: {short(error)}") from error

    def _run_as_ort_values(self, feed: dict[str, Any], run_options: onnxruntime.RunOptions | None) -> list[Any]:
        ort_feed = {name: _to_ort_value(value) for name, value in feed.items()}
        made = self._session.run_with_ort_values(self._outputs, ort_feed, run_options)
        return [_from_ort_value(one) for one in made]


def short(error: Exception) -> str:
    """The first line of onnxruntime's words, without its codes."""
    text = str(error).strip().splitlines()
    line = " ".join(text[0].split()) if text else type(error).__name__
    if line.startswith("[ONNXRuntimeError]"):
        line = line.split(" : ", 3)[-1]
    return line.removesuffix(" node with name ''")


def _to_ort_value(value: Any) -> onnxruntime.OrtValue:
    array = np.asarray(value, order="C")
    if array.dtype == ml_dtypes.bfloat16:
        bits = array.view(np.uint16)
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, TensorProto.BFLOAT16)
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def _from_ort_value(value: onnxruntime.OrtValue) -> Any:
    if value.data_type() != BFLOAT16:
        return value.numpy()
    raw = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(bytearray(raw), ml_dtypes.bfloat16).reshape(value.shape())
