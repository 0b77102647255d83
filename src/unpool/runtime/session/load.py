"""Loads the model of a session: applies SessionOptions to it, settles the options of its steps, and builds them."""

import os
from dataclasses import replace
from typing import NamedTuple

import onnx

from unpool.errors import UnpoolError, UnsupportedError
from unpool.execute.autotune import Tuner
from unpool.operators.contract import DOMAINS
from unpool.runtime.backends import ort_options
from unpool.runtime.backends.build import LoadOptions
from unpool.runtime.backends.ort_options import CONFIG_VARIABLE, DATA_FOLDER, config_entry, reads_model_config
from unpool.runtime.errors import error_class
from unpool.runtime.graph.errors import model_errors, short_message
from unpool.runtime.graph.load import FOLDERS_ENTRY, ModelSource, load
from unpool.runtime.graph.nodes import domain, with_subgraph_nodes
from unpool.runtime.graph.weights import folder_of, with_data_inside
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.session.config import SessionConfig
from unpool.runtime.session.executor import Executor
from unpool.runtime.session.ort_compat.model_files import save_optimized, to_onnx_format
from unpool.runtime.session.ort_compat.probes import Overrides, apply_overrides, options_in_metadata, read_overrides
from unpool.runtime.session.ort_compat.profile import Profile
from unpool.runtime.session.ort_compat.providers import cuda_memory
from unpool.runtime.session.passthrough import OrtModel, try_passthrough

_BUILT_IN = (
    *("ai.onnx", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "ai.onnx.training"),
    *("com.microsoft", "com.microsoft.experimental", "com.microsoft.nchwc", "org.pytorch.aten", *DOMAINS),
)
"""Domains whose operators need no library that a caller registered."""

_DISABLED = "optimization.disable_specified_optimizers"
_NO_CPU = "session.disable_cpu_ep_fallback"


class BuiltSession(NamedTuple):
    """A loaded model, its config, and the options as they were."""

    config: SessionConfig
    model: Executor | OrtModel
    options: onnxruntime.SessionOptions


def build(config: SessionConfig) -> BuiltSession:
    """The model of a session: passed through to onnxruntime, or planned and loaded."""
    ort_model = try_passthrough(config)
    if ort_model is not None:
        return BuiltSession(config, ort_model, ort_model.session.get_session_options())
    with model_errors(config.source):
        model, options, load_options = load_model(config)
        providers = config.all_providers.of_onnxruntime
        profile = Profile(options.profile_file_prefix, providers.names[0]) if options.enable_profiling else None
        executor = Executor(model, load_options)
        if options.optimized_model_filepath:
            save_optimized(model, options, config.semantics, providers)
    if profile is not None:
        profile.add("Session", "session_initialization")
        traces = (partition.trace for partition in executor.ort_partitions)
        profile.traces = [trace for trace in traces if trace is not None]
        executor.profile = profile
    return BuiltSession(config, executor, options)


def load_model(config: SessionConfig) -> tuple[onnx.ModelProto, onnxruntime.SessionOptions, LoadOptions]:
    """The model with all its tensors, large ones maybe in files; the options as they were; those of its steps."""
    default = onnxruntime.SessionOptions()
    source = to_onnx_format(config.source, default if config.options is None else config.options)
    user_options = caller_options = None
    if config.options is None and not reads_model_config():
        model, options = load(source, leaves_weights=True), default
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
    many_threads, one_thread = (
        replace(
            ort_options.partition_options(user_options, count),
            caller_options=caller_options,
            has_caller_providers=has_caller_providers,
            traces=traces,
        )
        for count in (threads, 1)
    )
    one_thread.copy.inter_op_num_threads = 1
    for copy in (many_threads.copy, one_thread.copy):
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
        openvino=config.all_providers.openvino,
        tuner=Tuner(config.tuning) if config.tuning and cuda is None else None,
        openvino_conv_transpose=bool(config.openvino_conv_transpose),
        convert_conv_before_indices=config.convert_conv_before_indices,
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
            f"InferenceSession: expected read_config_from_model to be as {CONFIG_VARIABLE}, which is 1, got 0. "
            f"Unset {CONFIG_VARIABLE}."
        )
    folder = config_entry(options, DATA_FOLDER) or ""
    path = os.path.abspath(source) if isinstance(source, (str, os.PathLike)) else None
    data_folder = folder or os.getcwd() if path is None else os.path.dirname(path)
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

    model = load(source, override, folder, link_folders, leaves_weights=True)
    return model, overrides.options if reads_model_config() else options, overrides


def has_providers(options: onnxruntime.SessionOptions) -> bool:
    """True if providers were added to the options; older releases of onnxruntime cannot add any."""
    return bool(getattr(options, "has_providers", bool)())


def needs_libraries(model: onnx.ModelProto) -> bool:
    """True if a node is of a domain that neither the model's functions nor onnxruntime itself have."""
    known = {*_BUILT_IN, *(function.domain for function in model.functions)}
    nodes = (*model.graph.node, *(node for function in model.functions for node in function.node))
    return any(domain(node) not in known for node in with_subgraph_nodes(nodes))
