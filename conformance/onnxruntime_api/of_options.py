"""Probes of SessionOptions, its config entries, and RunOptions."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from conformance.onnxruntime_api.made import (
    CPU,
    KERNEL,
    handed_on,
    options,
    run_options,
    session_of,
    total,
    total_of_external,
    value_of,
)
from conformance.onnxruntime_api.probe import Ask, Probe, has, logged
from tests.onnxruntime_api.nets import pools, with_words

TAKEN = "stored; the results stay the same"
ENTRIES = {
    "session.disable_prepacking": "1",
    "session.disable_quant_qdq": "1",
    "session.dynamic_block_base": "4",
    "session.force_spinning_stop": "1",
    "session.inter_op.allow_spinning": "0",
    "session.intra_op.allow_spinning": "0",
    "session.set_denormal_as_zero": "1",
    "session.strict_shape_type_inference": "1",
    "session.use_device_allocator_for_initializers": "1",
    "session.use_env_allocators": "0",
    "session.use_ort_model_bytes_directly": "0",
    "session.x64quantprecision": "1",
    "mlas.enable_gemm_fastmath_arm64_bfloat16": "0",
    "optimization.disable_specified_optimizers": "ConstantFolding",
    "optimization.enable_gelu_approximation": "1",
    "optimization.minimal_build_optimizations": "",
    "ep.context_enable": "0",
}


def kept(name: str, value: Any) -> Probe:
    """An attribute that results do not show: whether the session says it, and the result."""

    def ask(ort: Any) -> Any:
        chosen = value(ort) if callable(value) else value
        session = session_of(ort, options(ort, **{name: chosen}))
        return getattr(session.get_session_options(), name) == chosen, total(session)

    return Probe(name, ask, note=TAKEN)


def kept_entry(key: str, word: str) -> Probe:
    """An entry that results do not show: what the session says of it, and the result."""

    def ask(ort: Any) -> Any:
        session = session_of(ort, options(ort, {key: word}))
        return session.get_session_options().get_session_config_entry(key), total(session)

    return Probe(key, ask, note=TAKEN)


def enum(kind: str, member: str) -> Callable[[Any], Any]:
    """A member of an enumeration of the module."""
    return lambda ort: getattr(handed_on(ort, kind), member)


def shown(name: str, ask: Ask, without: Ask | None = None, note: str = "") -> Probe:
    """An attribute or method of SessionOptions that something shows."""
    return Probe(name, ask, without, note=note)


def called(name: str, *arguments: Any) -> Ask:
    """The result after a call of a method of SessionOptions."""

    def ask(ort: Any) -> Any:
        made = options(ort)
        getattr(made, name)(*arguments)
        return total(session_of(ort, made))

    return ask


def plainly(ort: Any) -> Any:
    """The result without any option."""
    return total(session_of(ort))


def resized(method: str, name: str) -> Ask:
    """The shape of the input where options give an axis a size."""

    def ask(ort: Any) -> Any:
        made = options(ort)
        if method:
            getattr(made, method)(name, 3)
        model = onnx.load_from_string(pools("N").content)
        model.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
        return ort.InferenceSession(model.SerializeToString(), made).get_inputs()[0].shape

    return ask


def replaced(ort: Any) -> Any:
    """The result where options bring a factor of 6 for 2."""
    factor = value_of(ort, np.float32([6]))
    made = options(ort)
    made.add_initializer("w", factor)
    return total(session_of(ort, made))


def external_values(ort: Any) -> Any:
    """The result where options bring the missing weights."""
    kernel = value_of(ort, KERNEL)
    made = options(ort)
    made.add_external_initializers(["k"], [kernel])
    return total_of_external(ort, made)


def external_files(ort: Any) -> Any:
    """The result where options bring the missing file."""
    content = KERNEL.tobytes()
    made = options(ort)
    made.add_external_initializers_from_files_in_memory(["weights.bin"], [content], [len(content)])
    return total_of_external(ort, made)


def external_folder(ort: Any) -> Any:
    """The result where an entry names the folder of the file."""
    Path("weights.bin").write_bytes(KERNEL.tobytes())
    return total_of_external(ort, options(ort, {"session.model_external_initializers_file_folder_path": os.getcwd()}))


def added_provider(ort: Any) -> Any:
    """The last provider where options bring it."""
    made = options(ort)
    made.add_provider(CPU, {})
    return session_of(ort, made).get_providers()[-1], made.has_providers()


def policy(ort: Any) -> Any:
    """The result where options have the provider chosen."""
    made = options(ort)
    made.set_provider_selection_policy(handed_on(ort, "OrtExecutionProviderDevicePolicy").PREFER_CPU)
    return total(session_of(ort, made))


def device(ort: Any) -> Any:
    """The last provider where options bring a device of it."""
    devices = [one for one in onnxruntime.get_ep_devices() if one.ep_name == CPU]
    made = options(ort)
    made.add_provider_for_devices(devices, {})
    return session_of(ort, made).get_providers()[-1]


def files(name: str, entries: dict[str, str] | None = None) -> Ask:
    """The files that a session leaves, and the first bytes of the first."""

    def ask(ort: Any) -> Any:
        session_of(ort, options(ort, entries, optimized_model_filepath=name))
        return sorted(os.listdir())

    return ask


def begins_as_ort(entries: dict[str, str]) -> Ask:
    """Whether the optimised model has onnxruntime's own format."""

    def ask(ort: Any) -> Any:
        session_of(ort, options(ort, entries, optimized_model_filepath="optimised"))
        path = Path("optimised")
        return path.exists() and path.read_bytes()[4:8] == b"ORTM"

    return ask


def profiled(**attributes: Any) -> Ask:
    """The beginning of the name of a profile."""

    def ask(ort: Any) -> Any:
        session = session_of(ort, options(ort, **attributes))
        total(session)
        return session.end_profiling().partition("_20")[0]

    return ask


def log_of_session(word: str, **attributes: Any) -> Ask:
    """Whether the log of a session has a word."""

    def ask(ort: Any) -> Any:
        return word in logged(lambda: total(session_of(ort, options(ort, **attributes))))

    return ask


def log_of_run(word: str, **attributes: Any) -> Ask:
    """Whether the log of a run has a word, in a session that logs all."""

    def ask(ort: Any) -> Any:
        session, given = session_of(ort, options(ort, log_severity_level=0)), run_options(ort, **attributes)
        return word in logged(lambda: total(session, given))

    return ask


def cancelled(ort: Any) -> Any:
    """What comes of loading with the flag set that cancels it."""
    made = options(ort)
    made.set_load_cancellation_flag(True)
    return total(session_of(ort, made))


def from_model(entry: str) -> Ask:
    """The number of threads that the words of a model ask for, where the environment says so."""

    def ask(ort: Any) -> Any:
        content = with_words(pools().content, metadata={"ort_config": entry})
        before = os.environ.get("ORT_LOAD_CONFIG_FROM_MODEL", "0")
        os.environ["ORT_LOAD_CONFIG_FROM_MODEL"] = "1"
        try:
            return ort.InferenceSession(content).get_session_options().intra_op_num_threads
        finally:
            os.environ["ORT_LOAD_CONFIG_FROM_MODEL"] = before

    return ask


def with_entries(entries: dict[str, str]) -> Ask:
    """The result with entries."""
    return lambda ort: total(session_of(ort, options(ort, entries)))


def recorded(entries: dict[str, str]) -> Ask:
    """Whether it is known which provider has which node."""
    return lambda ort: len(session_of(ort, options(ort, entries)).get_provider_graph_assignment_info()) > 0


def of_run(name: str, value: Any) -> Probe:
    """An attribute of RunOptions that results do not show."""

    def ask(ort: Any) -> Any:
        return total(session_of(ort), run_options(ort, **{name: value}))

    return Probe(name, ask, note="accepted; the results stay the same")


def run_entry(ort: Any) -> Any:
    """The result with an entry of the run, and the entry."""
    given = run_options(ort)
    given.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return total(session_of(ort), given), given.get_run_config_entry("memory.enable_memory_arena_shrinkage")


def is_there(name: str) -> Ask:
    """Whether the module has a name."""

    def ask(ort: Any) -> Any:
        return has(ort, name)

    return ask


def has_method(method: str, name: str = "SessionOptions") -> Ask:
    """Whether the class that scripts take has a method."""
    return lambda ort: hasattr(handed_on(ort, name), method)


OPTIMISED = {"session.optimized_model_external_initializers_file_name": "weights.bin"}
SMALL = {"session.optimized_model_external_initializers_min_size_in_bytes": "1"}
BY_NAME, BY_WORD = "add_free_dimension_override_by_name", "add_free_dimension_override_by_denotation"
NAMED_SIZES = (
    "an output whose shape onnxruntime does not infer, as after a MaxUnpool with output_shape, keeps the name there "
    "and has the size here"
)
LIBRARY = "./libnowhere.so"
SESSION = (
    shown("add_external_initializers", external_values),
    shown("add_external_initializers_from_files_in_memory", external_files),
    shown(BY_WORD, resized(BY_WORD, "DATA_BATCH"), resized("", "")),
    shown(BY_NAME, resized(BY_NAME, "N"), resized("", ""), note=NAMED_SIZES),
    shown("add_initializer", replaced, plainly),
    shown("add_provider", added_provider),
    shown("add_provider_for_devices", device),
    shown("add_session_config_entry", with_entries({"my.own": "1"}), note="see the next table"),
    shown("clear_ep_context_data_read_func", called("clear_ep_context_data_read_func")),
    kept("enable_cpu_mem_arena", False),
    kept("enable_mem_pattern", False),
    kept("enable_mem_reuse", False),
    shown("enable_profiling", profiled(enable_profiling=True), profiled()),
    kept("execution_mode", enum("ExecutionMode", "ORT_PARALLEL")),
    kept("execution_order", enum("ExecutionOrder", "PRIORITY_BASED")),
    shown("get_session_config_entry", has_method("get_session_config_entry")),
    kept("graph_optimization_level", enum("GraphOptimizationLevel", "ORT_DISABLE_ALL")),
    shown("has_providers", has_method("has_providers")),
    kept("inter_op_num_threads", 2),
    kept("intra_op_num_threads", 2),
    shown("log_severity_level", log_of_session("[I:", log_severity_level=0), log_of_session("[I:")),
    kept("log_verbosity_level", 1),
    shown("logid", log_of_session("my words", log_severity_level=0, logid="my words"), log_of_session("my words")),
    shown("optimized_model_filepath", files("optimised.onnx"), files("")),
    shown(
        "profile_file_prefix",
        profiled(enable_profiling=True, profile_file_prefix="mine"),
        profiled(enable_profiling=True),
    ),
    shown("register_custom_ops_library", called("register_custom_ops_library", LIBRARY), note="with a missing library"),
    shown("set_ep_context_data_read_func", has_method("set_ep_context_data_read_func")),
    shown("set_load_cancellation_flag", cancelled, plainly),
    shown("set_provider_selection_policy", policy),
    shown("set_provider_selection_policy_delegate", has_method("set_provider_selection_policy_delegate")),
    kept("use_deterministic_compute", True),
    shown("use_per_session_threads", lambda ort: total(session_of(ort, options(ort, use_per_session_threads=False)))),
)
CONFIG = (
    Probe("session.load_model_format", with_entries({"session.load_model_format": "ORT"}), plainly),
    Probe("session.save_model_format", begins_as_ort({"session.save_model_format": "ORT"}), begins_as_ort({})),
    Probe("session.disable_cpu_ep_fallback", with_entries({"session.disable_cpu_ep_fallback": "1"}), plainly),
    Probe("session.model_external_initializers_file_folder_path", external_folder),
    Probe(next(iter(OPTIMISED)), files("optimised.onnx", OPTIMISED | SMALL), files("optimised.onnx")),
    Probe("session.record_ep_graph_assignment_info", recorded({"session.record_ep_graph_assignment_info": "1"})),
    Probe("ort_config in the model", from_model('{"session_options": {"intra_op_num_threads": 2}}'), from_model("{}")),
    *(kept_entry(key, word) for key, word in ENTRIES.items()),
)
RUN = (
    Probe("add_active_adapter", has_method("add_active_adapter", "RunOptions")),
    Probe("add_run_config_entry", run_entry),
    Probe("get_run_config_entry", run_entry),
    of_run("log_severity_level", 3),
    of_run("log_verbosity_level", 1),
    Probe("logid", log_of_run("my run", logid="my run"), log_of_run("my run")),
    of_run("only_execute_path_to_fetches", True),
    Probe("terminate", lambda ort: total(session_of(ort), run_options(ort, terminate=True)), plainly),
)
SECTIONS = {"Attributes of SessionOptions": SESSION, "Session config entries": CONFIG, "Attributes of RunOptions": RUN}
