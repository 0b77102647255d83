"""ONNX words to resolved calls: what a version accepts, and the sizes that a call comes to."""
