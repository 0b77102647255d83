"""The default exporter of torch, dynamo=True: an exported program, translated node by node with onnxscript."""
