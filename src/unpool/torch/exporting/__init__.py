"""torch.onnx.export with MaxPool and MaxUnpool kept, for both exporters of torch.

call              `unpool.torch.export`: reads the call, runs one of the exporters, writes the file
example           inputs from texts such as 1x3xHxW
dynamic_shapes    sizes that a caller leaves open
versions          which opsets have our operators
pools, windows    ATen's settings as ONNX attributes
writer, nodes     which nodes a pool or an unpooling becomes; `Writer` is what differs between the exporters
dynamo/           the exporter with dynamo=True: its Writer, the translation table, models in older opsets
legacy/           the exporter with dynamo=False: its Writer, the symbolics and their registration
verify            runs the written file beside the module
"""
