"""A piece of the graph that onnxruntime's CUDA provider runs: tensors in its memory in and out, without copies."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from unpool.dtypes import AnyArray
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.cuda_memory import CudaMemory, tensor_of, travels
from unpool.runtime.runners.ort_options import PieceOptions, Providers
from unpool.runtime.runners.ort_piece import OrtPiece
from unpool.runtime.runners.ort_values import from_ort_value, place

_COUNTS = ("tensor(int64)", "tensor(int32)", "tensor(bool)")


class CudaPiece(OrtPiece):
    """A loaded piece. Sizes, counts and conditions stay on the host, where onnxruntime computes and reads them.

    So do types that torch does not get from onnxruntime. A piece with sequences or strings gets all from the host.
    """

    def __init__(
        self, model: bytes, where: str, options: PieceOptions, providers: Providers, *, memory: CudaMemory
    ) -> None:
        super().__init__(model, where, options, providers)
        self._memory = memory
        self._stays = {one.name: _stays(one) for one in self.session.get_outputs()}

    def _run(
        self,
        feed: dict[str, Any],
        run_options: onnxruntime.RunOptions | None,
        targets: Sequence[AnyArray | None] | None,
    ) -> list[Any]:
        memory = self._memory
        if not self._has_only_numbers:
            return super()._run({name: memory.to_host(value) for name, value in feed.items()}, run_options, targets)
        with memory.running(run_options):
            binding = self.session.io_binding()
            held = {name: _without_gaps(value) for name, value in feed.items()}
            for name, value in held.items():
                binding.bind_input(name, *(place(value) if isinstance(value, np.ndarray) else memory.binding(value)))
            binding.synchronize_inputs()
            for name, stays in self._stays.items():
                binding.bind_output(name, *(memory.place if stays else ("cpu", 0)))
            self.session.run_with_iobinding(binding, run_options)
            made = zip(binding.get_outputs(), self._stays.values(), strict=True)
            return [tensor_of(one) if stays else from_ort_value(one) for one, stays in made]


def _stays(output: onnxruntime.NodeArg) -> bool:
    """Whether an output stays in the memory of the GPU."""
    is_count = output.type in _COUNTS and len(output.shape) < 2
    return not is_count and travels(output.type)


def _without_gaps(value: Any) -> Any:
    return np.asarray(value, order="C") if isinstance(value, np.ndarray) else value.contiguous()
