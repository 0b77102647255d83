"""A piece of the graph that onnxruntime runs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.ort_config import saying
from unpool.runtime.runners.ort_options import PieceOptions, Providers
from unpool.runtime.runners.ort_traces import PieceTrace
from unpool.runtime.runners.ort_values import KINDS, NUMPY_LACKS, from_ort_value, place, to_ort_value
from unpool.runtime.runners.stopping import STOPPED

PACKED = ("tensor(int4)", "tensor(uint4)", "tensor(int2)", "tensor(uint2)", "tensor(float4e2m1)")


class RefusedError(Exception):
    """onnxruntime refuses a piece. `may_be_invalid` is false if it only says that something is not implemented."""

    def __init__(self, reason: str, *, may_be_invalid: bool) -> None:
        super().__init__(reason)
        self.may_be_invalid = may_be_invalid


class OrtPiece:
    """A loaded piece: arrays in, arrays out, without copies. Types that NumPy lacks travel as OrtValue.

    Its `trace` is the profile that onnxruntime writes of it; None if it writes none.
    """

    def __init__(
        self,
        model: bytes,
        where: str,
        options: PieceOptions,
        providers: Providers,
    ) -> None:
        asked = () if options.brings_providers else (list(providers.names), list(providers.options))
        try:
            with options.lent() as lent:
                self._session = onnxruntime.InferenceSession(saying(model, lent), lent, *asked)
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
        self.trace = None if options.traces is None else PieceTrace(self._session, options.traces)
        self._needs_ort_values = any(one.type in NUMPY_LACKS for one in ends)
        self._has_only_numbers = all(one.type in KINDS for one in ends)

    @property
    def session(self) -> onnxruntime.InferenceSession:
        """The session of onnxruntime that runs the piece."""
        return self._session

    @property
    def output_types(self) -> dict[str, str]:
        """Onnxruntime's name of the type of each output, such as `tensor(float)`."""
        return {one.name: one.type for one in self._session.get_outputs()}

    def run(
        self,
        values: Sequence[Any],
        run_options: onnxruntime.RunOptions | None,
        targets: Sequence[AnyArray | None] | None = None,
    ) -> list[Any]:
        """Outputs in the order of the piece.

        Args:
            values: its inputs.
            run_options: of the caller.
            targets: for every output, where to write it; those of a piece with other values than numbers are left.

        Raises:
            UnpoolError: onnxruntime could not run the piece on these values, or `terminate` of the options is set.
        """
        feed = dict(zip(self._inputs, values, strict=True))
        try:
            return self._run(feed, run_options, targets)
        except Exception as error:
            if run_options is not None and run_options.terminate:
                raise UnpoolError(f"{self._where}: {STOPPED}") from error
            raise UnpoolError(f"{self._where}: onnxruntime cannot run it on these inputs: {short(error)}") from error

    def _run(
        self,
        feed: dict[str, Any],
        run_options: onnxruntime.RunOptions | None,
        targets: Sequence[AnyArray | None] | None,
    ) -> list[Any]:
        if targets is not None and self._has_only_numbers:
            return self._run_into(feed, run_options, targets)
        if self._needs_ort_values:
            return self._run_as_ort_values(feed, run_options)
        return list(self._session.run(self._outputs, feed, run_options))

    def _run_into(
        self, feed: dict[str, Any], run_options: onnxruntime.RunOptions | None, targets: Sequence[AnyArray | None]
    ) -> list[Any]:
        binding = self._session.io_binding()
        held = {name: np.asarray(value, order="C") for name, value in feed.items()}
        for name, value in held.items():
            binding.bind_input(name, *place(value))
        for name, target in zip(self._outputs, targets, strict=True):
            binding.bind_output(name, *(() if target is None else place(target)))
        self._session.run_with_iobinding(binding, run_options)
        pairs = zip(targets, binding.get_outputs(), strict=True)
        return [from_ort_value(made) if target is None else target for target, made in pairs]

    def _run_as_ort_values(self, feed: dict[str, Any], run_options: onnxruntime.RunOptions | None) -> list[Any]:
        ort_feed = {name: to_ort_value(value) for name, value in feed.items() if value is not None}
        made = self._session.run_with_ort_values(self._outputs, ort_feed, run_options)
        return [from_ort_value(one) for one in made]


def short(error: Exception) -> str:
    """The first line of onnxruntime's message, without the codes in front of it."""
    text = str(error).strip().splitlines()
    line = text[0].strip() if text else type(error).__name__
    if line.startswith("[ONNXRuntimeError]"):
        line = line.split(" : ", 3)[-1]
    return line.removesuffix(" node with name ''").rstrip(".")
