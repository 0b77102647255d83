"""Whole ONNX models: read, plan, run. Needs the extra `run`."""

import unpool.runtime.requirements  # noqa: F401  the one place that says which extra is missing
