"""SessionConfig: the constructor arguments of a session; with them its model is loaded, again or after pickling."""

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from unpool.errors import UnpoolError, UnsupportedError
from unpool.execute.autotune import SECONDS, Tuner
from unpool.runtime.backends import ort_options
from unpool.runtime.backends.build import LoadOptions
from unpool.runtime.backends.ort_options import DATA_FOLDER, Providers, config_entry, has_providers, reads_model_config
from unpool.runtime.errors import error_class
from unpool.runtime.graph.errors import short_message
from unpool.runtime.graph.load import FOLDERS_ENTRY, ModelSource, load, needs_libraries
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.graph.weights import folder_of, with_data_inside
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.session.ort_compat.model_files import to_onnx_format
from unpool.runtime.session.ort_compat.probes import Overrides, apply_overrides, options_in_metadata, read_overrides
from unpool.runtime.session.ort_compat.providers import cuda_memory

_DISABLED = "optimization.disable_specified_optimizers"
_NO_CPU = "session.disable_cpu_ep_fallback"

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
    checks_profit: bool = True  # whether onnxruntime gets nodes by which unpool would save too little time
    assumes_sizes: bool = True  # whether a plan may assume that windows of MaxPools fit into sizes that are not known

    @property
    def all_providers(self) -> Providers:
        """The providers of partitions."""
        return self.providers or ort_options.CPU_ONLY

    def with_providers(self, providers: Providers | None) -> "SessionConfig":
        """The same with other providers, before tuning has chosen."""
        return replace(
            self, providers=providers, openvino_conv_transpose=None, convert_conv_before_indices=False,
            checks_profit=True,
        )  # fmt: skip

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
        return state | {"options": ({name: getattr(options, name) for name in ort_options.ATTRIBUTES}, entries)}

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


def tuning_seconds(tune: bool | float) -> float:
    """The maximum seconds of tuning, from the argument `tune`; 0 for no tuning."""
    if isinstance(tune, bool):
        return SECONDS if tune else 0.0
    if not isinstance(tune, (int, float)) or not 0 <= tune < math.inf:
        raise UnpoolError(
            f"tune: expected True, False or seconds, 0 or more; got {tune!r}. Pass True for the usual time."
        )
    return float(tune)


def load_model(config: SessionConfig) -> tuple[onnx.ModelProto, onnxruntime.SessionOptions, LoadOptions]:
    """The model with all its tensors, large ones maybe in files; the options as they were; those of its steps."""
    default = onnxruntime.SessionOptions()
    source = to_onnx_format(config.source, default if config.options is None else config.options)
    user_options = caller_options = None
    if config.options is None and not reads_model_config():
        model, options = load(source, leaves_weights=True, leaves_own_weights=True), default
    else:
        model, options, overrides = _load_with_overrides(config, source)
        user_options = overrides.options
        if config.options is not None and (needs_libraries(model) or has_providers(config.options)):
            caller_options = config.options  # no copy of it has these
            if overrides.has_external:
                raise UnsupportedError(
                    "SessionOptions.add_external_initializers: external initializers cannot be combined with operator "
                    "libraries or added providers. Put the initializers into the model."
                )
        if options.optimized_model_filepath:  # the file that is written has weights of its own
            for tensor in model.graph.initializer:
                if folder_of(tensor) is not None:
                    tensor.CopyFrom(with_data_inside(tensor))
    threads = ort_options.thread_budget(options, config.threads)
    has_caller_providers = caller_options is not None and config.providers is None and has_providers(caller_options)
    traces = ort_options.TraceFolder() if options.enable_profiling and not reads_model_config() else None
    whole, many_threads, one_thread = (
        replace(
            ort_options.partition_options(user_options, count, is_whole=is_whole),
            caller_options=caller_options,
            has_caller_providers=has_caller_providers,
            traces=traces,
        )
        for count, is_whole in ((threads, True), (threads, False), (1, False))
    )
    one_thread.copy.inter_op_num_threads = 1
    for copy in (whole.copy, many_threads.copy, one_thread.copy):
        disabled = {*filter(None, (config_entry(copy, _DISABLED) or "").split(";")), *config.disabled_optimizers}
        if disabled:
            copy.add_session_config_entry(_DISABLED, ";".join(sorted(disabled)))
    cuda = None if has_caller_providers else cuda_memory(config.all_providers)
    load_options = LoadOptions(
        config.semantics,
        threads,
        many_threads,
        one_thread,
        config.all_providers.of_onnxruntime,
        whole=whole,
        openvino=config.all_providers.openvino,
        tuner=Tuner(config.tuning) if config.tuning and cuda is None else None,
        openvino_conv_transpose=bool(config.openvino_conv_transpose),
        convert_conv_before_indices=config.convert_conv_before_indices,
        checks_profit=config.checks_profit,
        assumes_sizes=config.assumes_sizes and not isinstance(config.source, onnx.ModelProto),  # it may change
        cuda=cuda,
    )
    return model, options, load_options


def require_picklable(config: SessionConfig) -> None:
    """Refuse options with initializers, sizes, libraries or providers: a pickle keeps attributes and known entries."""
    if config.options is None or reads_model_config():
        return
    model, _, overrides = _load_with_overrides(config, to_onnx_format(config.source, config.options))
    if not overrides.is_empty or needs_libraries(model) or has_providers(config.options):
        raise UnsupportedError(
            "InferenceSession: SessionOptions with initializers, sizes, libraries or providers cannot be pickled. Make "
            "a new session in the other process."
        )


def _load_with_overrides(
    config: SessionConfig, source: ModelSource
) -> tuple[onnx.ModelProto, onnxruntime.SessionOptions, Overrides]:
    """The model with the overrides, the options that count, which may be in its own metadata, and the overrides."""
    try:
        options = ort_options.clone(config.options or onnxruntime.SessionOptions())
    except Exception as error:
        raise error_class(UnpoolError, type(error))(
            f"SessionOptions: onnxruntime rejected the options: {short_message(error)}. Change or remove that option."
        ) from error
    if reads_model_config() and config.reads_config is False:
        raise error_class(UnpoolError, RuntimeError)(
            f"InferenceSession: expected read_config_from_model to be as {ort_options.CONFIG_VARIABLE}, which is 1, "
            f"got 0. Unset {ort_options.CONFIG_VARIABLE}."
        )
    folder = config_entry(options, DATA_FOLDER) or ""
    data_folder = folder or os.getcwd()
    if isinstance(source, (str, os.PathLike)):
        data_folder = str(Path(source).absolute().parent)
    link_folders = [name for name in (config_entry(options, FOLDERS_ENTRY) or "").split(os.pathsep) if name]
    overrides = Overrides({}, {}, options)

    def override(model: onnx.ModelProto) -> onnx.ModelProto:
        nonlocal overrides
        if reads_model_config():
            overrides = Overrides({}, {}, options_in_metadata(model))
            return model
        if config_entry(options, _NO_CPU) == "1":
            raise error_class(UnsupportedError, "Fail")(
                f"SessionOptions: the entry {_NO_CPU} = 1 forbids the CPU, on which unpool runs. Remove the entry or "
                "set it to 0."
            )
        overrides = read_overrides(options, model, data_folder)
        if overrides.is_empty:
            return model
        if model is source:  # which is the caller's
            model = onnx.ModelProto()
            model.CopyFrom(source)
        apply_overrides(model, overrides)
        return model

    model = load(source, override, folder, link_folders, leaves_weights=True, leaves_own_weights=True)
    return model, overrides.options if reads_model_config() else options, overrides
