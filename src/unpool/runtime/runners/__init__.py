"""Runners of a step of a plan: unpool, onnxruntime, or onnx's ReferenceEvaluator."""
