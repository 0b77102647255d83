"""SessionConfig: the constructor arguments of a session, with which it is loaded again or pickled."""

import math
import os
from dataclasses import dataclass, replace
from typing import Any

import onnx

from unpool.errors import UnpoolError, UnsupportedError
from unpool.execute.autotune import SECONDS
from unpool.runtime.backends.ort_options import ATTRIBUTES, CPU_ONLY, Providers, config_entry
from unpool.runtime.graph.load import FOLDERS_ENTRY, ModelSource
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.graph.weights import try_serialize
from unpool.runtime.requirements import onnxruntime

ENTRIES = (
    *("session.disable_prepacking", "session.disable_quant_qdq", "session.dynamic_block_base"),
    *("session.force_spinning_stop", "session.inter_op.allow_spinning", "session.intra_op.allow_spinning"),
    *("session.intra_op.spin_duration_us", "session.intra_op.spin_backoff_max"),
    *("session.inter_op.spin_duration_us", "session.inter_op.spin_backoff_max"),
    *("session.set_denormal_as_zero", "session.strict_shape_type_inference", "session.use_env_allocators"),
    *("session.use_device_allocator_for_initializers", "session.use_ort_model_bytes_directly"),
    *("session.x64quantprecision", "session.load_model_format", "session.save_model_format"),
    *("session.disable_cpu_ep_fallback", "session.allow_released_opsets_only"),
    *("session.model_external_initializers_file_folder_path", "session.record_ep_graph_assignment_info"),
    *("session.optimized_model_external_initializers_file_name", "ep.context_enable"),
    *("session.optimized_model_external_initializers_min_size_in_bytes", "ep.context_file_path"),
    *("mlas.enable_gemm_fastmath_arm64_bfloat16", "optimization.disable_specified_optimizers"),
    *("optimization.enable_gelu_approximation", "optimization.minimal_build_optimizations", FOLDERS_ENTRY),
)
"""The config entries of SessionOptions that are pickled; onnxruntime cannot list those that are set."""


@dataclass(frozen=True)
class SessionConfig:
    """The arguments of a session; options and providers are None where the caller gave none."""

    source: ModelSource
    options: onnxruntime.SessionOptions | None
    providers: Providers | None
    semantics: Semantics
    threads: int | None  # at most; None for all cores
    reads_config: bool | None  # whether options in the model count; None where the environment decides
    disabled_optimizers: frozenset[str]  # names of onnxruntime's
    tuning: float = 0.0  # maximum seconds for timing runtimes and algorithms; 0 for no tuning
    openvino_conv_transpose: bool | None = None  # whether OpenVINO computes it too; None where tuning may choose
    convert_conv_before_indices: bool = False  # whether unpool may also compute a Conv on which Indices depend

    @property
    def all_providers(self) -> Providers:
        """The providers of partitions."""
        return self.providers or CPU_ONLY

    def with_providers(self, providers: Providers | None) -> "SessionConfig":
        """The same with other providers, before tuning has chosen."""
        return replace(self, providers=providers, openvino_conv_transpose=None, convert_conv_before_indices=False)

    @property
    def converts_conv(self) -> bool:
        """True if unpool may compute a Conv."""
        highest = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        level = highest if self.options is None else self.options.graph_optimization_level
        has_fast_conv = self.all_providers.cuda is not None or self.all_providers.openvino is not None
        return bool(level == highest) and not self.semantics.exact and not has_fast_conv

    def to_state(self, options: onnxruntime.SessionOptions) -> dict[str, Any]:
        """The arguments as values that can be pickled; `options` are those of the session when it was made."""
        if isinstance(self.source, onnx.ModelProto):
            raise UnsupportedError(
                "InferenceSession: a ModelProto of 2 GiB or more cannot be pickled. Save it to a file, and make the "
                "session from its path."
            )
        state = {name: value for name, value in vars(self).items() if name != "options"}
        if self.options is None:
            return state | {"options": None}
        pairs = ((key, config_entry(options, key)) for key in ENTRIES)
        entries = {key: value for key, value in pairs if value is not None}
        return state | {"options": ({name: getattr(options, name) for name in ATTRIBUTES}, entries)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "SessionConfig":
        """The config that `to_state` was called on."""
        if state["options"] is None:
            return cls(**state)
        attributes, entries = state["options"]
        options = onnxruntime.SessionOptions()
        for name, value in attributes.items():
            setattr(options, name, value)
        for key, value in entries.items():
            options.add_session_config_entry(key, value)
        return cls(**{**state, "options": options})


def stable_source(source: ModelSource) -> ModelSource:
    """The source in a form that does not change: an absolute path, bytes, or a ModelProto too large for bytes."""
    if isinstance(source, (str, os.PathLike)):
        return os.path.abspath(source)
    if not isinstance(source, onnx.ModelProto):
        return bytes(source)
    content = try_serialize(source)
    return source if content is None else content


def tuning_seconds(tune: bool | float) -> float:
    """The maximum seconds of tuning, from the argument `tune`; 0 for no tuning."""
    if isinstance(tune, bool):
        return SECONDS if tune else 0.0
    if not isinstance(tune, (int, float)) or not 0 <= tune < math.inf:
        raise UnpoolError(
            f"tune: expected True, False or seconds, 0 or more; got {tune!r}. Pass True for the usual time."
        )
    return float(tune)
