"""Passes: model -> model, with the same results; onnxruntime/passes.py lists those of a session."""
