"""What every step of a model is loaded with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unpool.execute.autotune import Tuner
from unpool.runtime.graph.node_contract import Meaning
from unpool.runtime.passes.conv_as_transpose import RANKS
from unpool.runtime.passes.improve import Changes
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.ort_options import PieceOptions, Providers

if TYPE_CHECKING:
    from unpool.runtime.runners.cuda_memory import CudaMemory


@dataclass(frozen=True)
class Settings:
    """What every step is loaded with.

    Attributes:
        meaning: of the operators of ours.
        threads: at most so many; None for all cores.
        options: of pieces of onnxruntime.
        one_thread: of further ones.
        providers: of either.
        openvino: what a caller tells OpenVINO, which is asked for every piece then; None where it gets none.
        raises: whether decomposed unpoolings become MaxUnpool again.
        tuner: finds the fastest way of every ConvTranspose; None where the cheapest one is taken.
        delegates: whether OpenVINO gets every ConvTranspose that it computes as it is written.
        before_indices: whether unpool may also compute a Conv on which Indices depend.
        cuda: the memory in which values stay; None where they are arrays of the host.
    """

    meaning: Meaning
    threads: int | None
    options: PieceOptions
    one_thread: PieceOptions
    providers: Providers
    openvino: Mapping[str, str] | None = None
    raises: bool = True
    tuner: Tuner | None = None
    delegates: bool = False
    before_indices: bool = False
    cuda: "CudaMemory | None" = None

    @property
    def changes(self) -> Changes:
        """What the passes change; where unpool does not compute a ConvTranspose, it takes no activations in."""
        return Changes(self.raises, self._turns, self.before_indices, fuses=not self.delegates)

    @property
    def _turns(self) -> tuple[int, ...]:
        """Over how many axes unpool may compute a Conv, whose results are then rounded differently.

        Not beside OpenVINO, nor where onnxruntime has CUDA: their convolutions are fast.
        """
        highest = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        is_beside = self.openvino is not None or self.providers.cuda is not None
        if self.options.graph_optimization_level != highest or self.meaning.exact or is_beside:
            return ()
        return RANKS
