"""Tests of what a script finds that says `import unpool as ort`: each runs with onnxruntime itself and with unpool."""
