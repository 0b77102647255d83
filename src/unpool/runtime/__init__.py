"""Tools on whole ONNX models: rewriting, comparing, tiles, files. Needs the extra `run`."""

import unpool.onnxruntime.package  # noqa: F401  the one place that says which extra is missing
