"""Operators on tensors, with torch.nn.functional's signatures, results and gradients.

max_pool, max_unpool, conv_transpose    the functions that `unpool.torch` exports, and the operators unpool::NAME
arguments       the arguments that torch accepts, and the sizes of results
eager_fallback  the calls that torch's own operators run
register        operators: their registration with PyTorch, and calls without its dispatcher
tensors         tensors as arrays for kernels
"""
