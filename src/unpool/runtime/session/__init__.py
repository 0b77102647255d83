"""The session, which loads a whole model and runs it as a session of onnxruntime does."""
