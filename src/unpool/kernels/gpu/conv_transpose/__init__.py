"""Transposed convolution on a GPU: which kernel runs a call, and why.

| inputs | kernel | why |
|---|---|---|
| 8 channels and 8 maps of a group or more, up to float32, finite weights | products | dense products of blocks |
| groups of few channels or maps, float64, weights with NaN or infinity | sums | nothing is multiplied by padding |

Both part the output into phases, the positions that are equal modulo the stride: neighbours in a phase need
neighbouring inputs, by the same taps (`phases.py`). Whether weights are finite is known on the device alone: where
`products` may run, both kernels start, and one of them ends at once. There tensors are channels-last, or are copied to
be so (`layouts.py`): then what a step reads are neighbours in memory.

The gradient by x is a convolution by the same two kernels (`launch_adjoint`); that by the weights has one of its own,
`weight_gradient.py`.
"""

from unpool.kernels.gpu.conv_transpose.grow import Growth, Packed, launch, launch_adjoint, pack

__all__ = ["Growth", "Packed", "launch", "launch_adjoint", "pack"]
