"""Arrays in, arrays out: no ONNX words below this line."""
