"""The packages that running whole models needs, and what to do when they are not there."""

try:
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"unpool.runtime: needs the packages onnx and onnxruntime, {error.name} is not installed. "
        "Run: pip install 'unpool[run]'",
        name=error.name,
    ) from error
