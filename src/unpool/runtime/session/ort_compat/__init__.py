"""Parts of onnxruntime's interface that a session imitates beyond loading and running a model."""
