"""Names of `unpool` that are imported on first use: onnxruntime's names, for `import unpool as ort`, and the commands.

They need onnx and onnxruntime, which `import unpool` must not load.
"""

_CORE = """
    AdapterFormat ExecutionMode ExecutionOrder GraphOptimizationLevel LoraAdapter OrtAllocatorType OrtDevice OrtMemType
    OrtMemoryInfo OrtValue RunOptions SessionIOBinding SessionOptions SparseTensor IOBinding ModelMetadata NodeArg capi
    get_all_providers get_available_providers get_build_info get_device get_version_string set_seed
    disable_telemetry_events enable_telemetry_events set_default_logger_severity set_default_logger_verbosity
"""
CORE_ONNXRUNTIME_NAMES = frozenset(_CORE.split())  # names that every release of onnxruntime has; `dir` lists them
_NEWER = """
    ModelCompiler ModelPackage ModelPackageComponentContext ModelPackageContext ModelPackageOptions
    ModelPackageWriteMode OrtArenaCfg OrtCompileApiFlags OrtDeviceMemoryType OrtDeviceVendorId OrtEpAssignedNode
    OrtEpAssignedSubgraph OrtEpContextData OrtEpContextDataBuffer OrtEpDevice OrtExecutionProviderDevicePolicy
    OrtExternalInitializerInfo OrtHardwareDevice OrtHardwareDeviceType OrtMemoryInfoDeviceType OrtSparseFormat
    OrtSyncStream copy_tensors create_and_register_allocator create_and_register_allocator_v2 get_ep_devices
    has_collective_ops preload_dlls print_debug_info register_execution_provider_library set_default_logger_callback
    set_global_thread_pool_sizes unregister_execution_provider_library
"""
ONNXRUNTIME_NAMES = CORE_ONNXRUNTIME_NAMES.union(_NEWER.split())  # older releases lack some of them

UNPOOL_NAMES = {"InferenceSession": ("unpool.onnxruntime", "InferenceSession")}
"""Names of onnxruntime that unpool defines itself, each with its module and its name there."""

FUNCTIONS = {
    "canonicalise": ("unpool.runtime.rewrite.canonicalise", "canonicalise"),
    "check": ("unpool.runtime.lint.lint", "lint"),
    "compare": ("unpool.runtime.compare.compare", "compare"),
    "explain": ("unpool.explanation.explain", "explain"),
    "fix": ("unpool.runtime.rewrite.fix", "fix"),
    "lower": ("unpool.runtime.lower.lower", "lower"),
    "map_tiles": ("unpool.runtime.cluster.map_tiles", "map_tiles"),
    "plan": ("unpool.onnxruntime", "plan"),
    "report": ("unpool.runtime.report.report", "report"),
    "upgrade": ("unpool.runtime.rewrite.upgrade", "upgrade"),
}
"""The commands of `unpool` as functions, and runs on a cluster."""

OPERATOR_FUNCTIONS = frozenset(
    [
        "conv_transpose",
        "max_pool",
        "max_unpool",
        "prepare_conv_transpose",
        "raise_pending",
        "to_onnx_indices",
        "to_torch_indices",
    ]
)
"""Names of `unpool.functional`, which needs NumPy, the operators and what prepares kernels."""
