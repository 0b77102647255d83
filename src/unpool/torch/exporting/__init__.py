"""torch.onnx.export with MaxPool and MaxUnpool, for both exporters of torch.

export            `unpool.torch.export`: reads the call, runs one of the exporters, writes the file
example           inputs from texts such as 1x3xHxW
dynamic_shapes    dynamic dimensions
size_forms        sizes such as 8H and 2H+1, and the search for them
nodes             the nodes of a pool or an unpooling, and the `NodeWriter` of both exporters
dynamo            the exporter with dynamo=True: its translation table and NodeWriter
opset_downgrade   its models in older opsets
torchscript       the exporter with dynamo=False: its symbolics, their registration and its NodeWriter
verify            compares the written file with the module
"""
