"""What a session is pickled as: the model's path or bytes, and what was told to it in words."""

from typing import Any

import onnx

from unpool.errors import UnsupportedError
from unpool.runtime.graph.external import FOLDERS
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.ort_copies import ATTRIBUTES, entry
from unpool.runtime.session.told import Told

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
    *("optimization.enable_gelu_approximation", "optimization.minimal_build_optimizations", FOLDERS),
)
"""The entries of SessionOptions that are known; others cannot be asked for."""


def words_of(told: Told, options: onnxruntime.SessionOptions) -> dict[str, Any]:
    """What was told, in words that can be pickled.

    Args:
        told: with a source that lasts.
        options: as they were when the session was made.

    Raises:
        UnsupportedError: the source is a ModelProto, which lasts only where it is too large for bytes.
    """
    if isinstance(told.source, onnx.ModelProto):
        raise UnsupportedError(
            "InferenceSession: expected a model of less than 2 GiB, or the path of a file, got a larger ModelProto to "
            "be pickled. Save it, and make the session of its path."
        )
    words = {name: value for name, value in vars(told).items() if name != "options"}
    if told.options is None:
        return words | {"options": None}
    entries = {key: entry(options, key) for key in ENTRIES}
    attributes = {name: getattr(options, name) for name in ATTRIBUTES}
    return words | {"options": (attributes, {key: value for key, value in entries.items() if value is not None})}


def told_in(words: dict[str, Any]) -> Told:
    """What `words_of` put into words."""
    if words["options"] is None:
        return Told(**words)
    attributes, entries = words["options"]
    options = onnxruntime.SessionOptions()
    for name, value in attributes.items():
        setattr(options, name, value)
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    return Told(**{**words, "options": options})
