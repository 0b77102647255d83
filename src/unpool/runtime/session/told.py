"""What the caller told a session, from which it can be loaded again: with other providers, or in another process."""

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace

import onnx

from unpool.errors import UnpoolError
from unpool.execute.autotune import SECONDS
from unpool.runtime.graph.load import ModelSource
from unpool.runtime.graph.node_contract import Meaning
from unpool.runtime.graph.serialized import content_of
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.ort_options import CPU, Providers


@dataclass(frozen=True)
class Told:
    """What a session is made of.

    Attributes:
        source: the model: a path, bytes or a ModelProto.
        options: None where the caller gave none.
        providers: None where the caller named none.
        meaning: of the operators of ours.
        threads: at most so many; None for all cores.
        reads_config: whether options in the model count; None where the environment decides.
        disabled_optimizers: names of onnxruntime's.
        tuning: seconds for which runners and ways are timed at most; 0 for not at all.
        delegates: whether OpenVINO computes ConvTranspose too, where it gets pieces; None where tuning may decide who
            runs the model.
        before_indices: whether unpool may also compute a Conv on which Indices depend.
    """

    source: ModelSource
    options: onnxruntime.SessionOptions | None
    providers: Providers | None
    meaning: Meaning
    threads: int | None
    reads_config: bool | None
    disabled_optimizers: frozenset[str]
    tuning: float = 0.0
    delegates: bool | None = None
    before_indices: bool = False

    @property
    def all_providers(self) -> Providers:
        """The providers that the pieces get."""
        return self.providers or Providers((CPU,), ({},))

    def with_providers(self, providers: Providers | None) -> "Told":
        """The same with other providers, before any trial has chosen."""
        return replace(self, providers=providers, delegates=None, before_indices=False)

    @property
    def turns(self) -> bool:
        """Whether unpool may compute a Conv."""
        highest = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        level = highest if self.options is None else self.options.graph_optimization_level
        others = self.all_providers.cuda is not None or self.all_providers.openvino is not None
        return bool(level == highest) and not self.meaning.exact and not others


def lasting(source: ModelSource) -> ModelSource:
    """The source as it stays: a path from the root, bytes that nobody changes, or a ModelProto too large for bytes."""
    if isinstance(source, (str, os.PathLike)):
        return os.path.abspath(source)
    if not isinstance(source, onnx.ModelProto):
        return bytes(source)
    content = content_of(source)
    return source if content is None else content


def names_of(optimizers: Iterable[str] | None) -> frozenset[str]:
    """The names of the optimizers that are not wanted."""
    return frozenset(optimizers or ())


def tuning_seconds(tune: bool | float) -> float:
    """For how long ways are timed, by what a session is told: 0 for not at all.

    Raises:
        UnpoolError: that is no time.
    """
    if isinstance(tune, bool):
        return SECONDS if tune else 0.0
    if not isinstance(tune, (int, float)) or not 0 <= tune < math.inf:
        raise UnpoolError(
            f"tune: expected True, False or seconds, 0 or more; got {tune!r}. Pass True for the usual time."
        )
    return float(tune)
