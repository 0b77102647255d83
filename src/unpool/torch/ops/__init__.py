"""Operators on tensors, with torch.nn.functional's signatures, answers and gradients.

max_pool, max_unpool, conv_transpose    the functions that `unpool.torch` exports: they read arguments as torch does
arguments    what torch accepts, and the sizes that follow
modes        what a call meets before its operator: autocast, ONNX export, tangents
registered/  the operators unpool::NAME that they call: kernels, gradients, tracing, vmap
"""
