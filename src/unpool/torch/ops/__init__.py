"""Operators on tensors, with torch.nn.functional's signatures, results and gradients.

max_pool, max_unpool, conv_transpose    the functions that `unpool.torch` exports
arguments       the arguments that torch accepts, and the sizes of results
modes           autocast, ONNX export and tangents around a call
eager_fallback  small calls that torch's own operator runs
library/        the operators unpool::NAME that they call: kernels, gradients, tracing, vmap
"""
