"""Names that are looked up in `unpool`: those of onnxruntime, so that `import unpool as ort` is enough, and commands.

They are looked up on first use, for they need onnx and onnxruntime, which `import unpool` must not load.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

OF_ONNXRUNTIME = frozenset(
    (
        "AdapterFormat",
        "ExecutionMode",
        "ExecutionOrder",
        "GraphOptimizationLevel",
        "LoraAdapter",
        "ModelCompiler",
        "ModelPackage",
        "ModelPackageComponentContext",
        "ModelPackageContext",
        "ModelPackageOptions",
        "ModelPackageWriteMode",
        "OrtAllocatorType",
        "OrtArenaCfg",
        "OrtCompileApiFlags",
        "OrtDevice",
        "OrtDeviceMemoryType",
        "OrtDeviceVendorId",
        "OrtEpAssignedNode",
        "OrtEpAssignedSubgraph",
        "OrtEpContextData",
        "OrtEpContextDataBuffer",
        "OrtEpDevice",
        "OrtExecutionProviderDevicePolicy",
        "OrtExternalInitializerInfo",
        "OrtHardwareDevice",
        "OrtHardwareDeviceType",
        "OrtMemType",
        "OrtMemoryInfo",
        "OrtMemoryInfoDeviceType",
        "OrtSparseFormat",
        "OrtSyncStream",
        "OrtValue",
        "RunOptions",
        "SessionIOBinding",
        "SessionOptions",
        "SparseTensor",
        "capi",
        "copy_tensors",
        "create_and_register_allocator",
        "create_and_register_allocator_v2",
        "disable_telemetry_events",
        "enable_telemetry_events",
        "get_build_info",
        "get_device",
        "get_ep_devices",
        "get_version_string",
        "has_collective_ops",
        "preload_dlls",
        "print_debug_info",
        "register_execution_provider_library",
        "set_default_logger_callback",
        "set_default_logger_verbosity",
        "set_global_thread_pool_sizes",
        "set_seed",
        "unregister_execution_provider_library",
    )
)
"""Names that are onnxruntime's own; an older release lacks some of them."""

COMPLETED = frozenset(
    (
        *("AdapterFormat", "ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel", "LoraAdapter"),
        *("OrtAllocatorType", "OrtDevice", "OrtMemType", "OrtMemoryInfo", "OrtValue", "RunOptions", "SessionIOBinding"),
        *("SessionOptions", "SparseTensor", "capi", "get_build_info", "get_device", "get_version_string", "set_seed"),
        *("disable_telemetry_events", "enable_telemetry_events", "set_default_logger_verbosity"),
    )
)
"""Those that every release has, which `dir` lists."""

OURS = {
    "IOBinding": ("unpool.runtime.session.io_binding", "IOBinding"),
    "InferenceSession": ("unpool.runtime.session.session", "InferenceSession"),
    "ModelMetadata": ("unpool.runtime.session.metadata", "ModelMetadata"),
    "NodeArg": ("unpool.runtime.session.signature", "ValueInfo"),
    "get_all_providers": ("unpool.runtime.session.providers", "get_all_providers"),
    "get_available_providers": ("unpool.runtime.session.providers", "get_available_providers"),
    "set_default_logger_severity": ("unpool.runtime.runners.ort_log", "set_default_logger_severity"),
}
"""Names that mean something else here, each with the module that has it, and its name there."""

COMMANDS = {
    "canonicalise": ("unpool.runtime.rewrite.canonicalise", "canonicalise"),
    "check": ("unpool.runtime.lint.lint", "lint"),
    "compare": ("unpool.runtime.compare.compare", "compare"),
    "explain": ("unpool.explanation.explain", "explain"),
    "fix": ("unpool.runtime.rewrite.fix", "fix"),
    "lower": ("unpool.runtime.lower.lower", "lower"),
    "plan": ("unpool.runtime.session.planned", "plan"),
    "report": ("unpool.runtime.report.report", "report"),
    "upgrade": ("unpool.runtime.rewrite.upgrade", "upgrade"),
}
"""The commands of `unpool` as functions."""


def find(name: str) -> Any:
    """The value of a name.

    Raises:
        AttributeError: nobody has it, or this release of onnxruntime does not.
        MissingExtraError: it needs packages that are not installed.
    """
    known = OURS.get(name) or COMMANDS.get(name)
    if known:
        module, own_name = known
        return getattr(import_module(module), own_name)
    if name in OF_ONNXRUNTIME:
        return getattr(import_module("unpool.runtime.requirements").onnxruntime, name)
    raise AttributeError(f"module 'unpool' has no attribute {name!r}")


def public_names() -> set[str]:
    """The names that `dir` lists beside those that are imported already; those of onnxruntime where it is installed."""
    return {*OURS, *COMMANDS, *(COMPLETED if find_spec("onnxruntime") else ())}
