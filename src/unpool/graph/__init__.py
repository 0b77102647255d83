"""Reads a model: loads and checks its file, makes a plain record of its nodes, and infers its types and sizes."""

from unpool.extras import require

require("unpool.graph", "run", "onnx", "onnxruntime")
