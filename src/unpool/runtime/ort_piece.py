"""A piece of the graph in onnxruntime."""

from collections.abc import Sequence
from typing import Any

import onnxruntime

from unpool.errors import UnpoolError
from unpool.runtime.ort_options import Providers
from unpool.runtime.ort_values import NUMPY_LACKS, from_ort_value, to_ort_value

PACKED = ("tensor(int4)", "tensor(uint4)", "tensor(int2)", "tensor(uint2)", "tensor(float4e2m1)")


class RefusedError(Exception):
    """onnxruntime does not take a piece; `may_be_invalid` unless it only says what is not implemented."""

    def __init__(self, words: str, *, may_be_invalid: bool) -> None:
        super().__init__(words)
        self.may_be_invalid = may_be_invalid


class OrtPiece:
    """A loaded piece: arrays in, arrays out, without copies. Types that NumPy lacks travel as OrtValue."""

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
            unfinished = type(error).__name__ == "NotImplemented"
            raise RefusedError(short(error), may_be_invalid=not unfinished) from error
        self._where = where
        self._inputs = [one.name for one in self._session.get_inputs()]
        self._outputs = [one.name for one in self._session.get_outputs()]
        ends = (*self._session.get_inputs(), *self._session.get_outputs())
        for one in ends:
            if one.type in PACKED:
                raise RefusedError(f"it has no arrays of {one.type}, which {one.name!r} is", may_be_invalid=False)
        self._needs_ort_values = any(one.type in NUMPY_LACKS for one in ends)

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
            if self._needs_ort_values:
                return self._run_as_ort_values(feed, run_options)
            return list(self._session.run(self._outputs, feed, run_options))
        except Exception as error:
            raise UnpoolError(f"{self._where}: onnxruntime cannot run it on these inputs: {short(error)}") from error

    def _run_as_ort_values(self, feed: dict[str, Any], run_options: onnxruntime.RunOptions | None) -> list[Any]:
        ort_feed = {name: to_ort_value(value) for name, value in feed.items()}
        made = self._session.run_with_ort_values(self._outputs, ort_feed, run_options)
        return [from_ort_value(one) for one in made]


def short(error: Exception) -> str:
    """The first line of onnxruntime's words, without its codes."""
    text = str(error).strip().splitlines()
    line = " ".join(text[0].split()) if text else type(error).__name__
    if line.startswith("[ONNXRuntimeError]"):
        line = line.split(" : ", 3)[-1]
    return line.removesuffix(" node with name ''").rstrip(".")
