"""The packages that running whole models needs, and the error where one is not installed."""

from unpool.extras import require

require("unpool.runtime", "run", "onnx", "onnxruntime")
