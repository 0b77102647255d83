"""What is measured on a GPU: the calls of `benchmarks.shapes`, in batches that fill the device, forward and trained."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from benchmarks import shapes
from benchmarks.case import INDEX_BYTES, Call

FORWARD, TRAINING = "forward", "training"
LEAST_BYTES = 8 << 20
"""Of a case that the goal of bandwidth holds for: what is smaller lives in the cache, or ends before it is started."""

HEADS = tuple(
    Call(
        suite="conv_transpose", operator="conv_transpose", name=name, shape=shape, window=4, stride=stride, pad=pad,
        channels=maps,
    )
    for name, shape, stride, pad, maps in (
        ("DCGAN image", (16, 64, 32, 32), 2, 1, 3),
        ("pix2pix image", (16, 128, 128, 128), 2, 1, 3),
        ("mask of one class", (16, 32, 128, 128), 4, 0, 1),
    )
)  # fmt: skip
"""Last layers: transposed convolutions to few maps, which a GPU computes as sub-pixel convolutions."""

_BATCH = 16
_TYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class GpuCase:
    """A call, alone or with its gradients.

    Attributes:
        call: the call.
        way: "forward", or "training" for forward and backward together.
    """

    call: Call
    way: str

    @property
    def path(self) -> str:
        """What no other case has."""
        return f"{self.way}/{self.call.path}"

    @property
    def bytes(self) -> int:
        """That have to be moved: every input read once and every output written once, in both directions."""
        forward = self.call.read + self.call.written
        return forward if self.way == FORWARD else forward + self._backward

    @property
    def flops(self) -> int:
        """Products and sums: those of the gradients by x and by w are as many as those of the call itself."""
        return self.call.flops * (1 if self.way == FORWARD else 3)

    @property
    def is_large(self) -> bool:
        """Whether it is bound by bandwidth, and large enough for the goal of it."""
        return not self.flops and self.bytes >= LEAST_BYTES

    @property
    def _backward(self) -> int:
        call, size = self.call, self.call.numpy_type.itemsize
        x, y, w = (math.prod(shape) * size for shape in (call.x_shape, call.y_shape, call.w_shape))
        if call.operator == "conv_transpose":
            return x + w + y + x + w  # both tensors and dY are read, both gradients written
        places = min(x, y) // size * INDEX_BYTES
        return min(x, y) + places + x  # dY: all of a pool's, of an unpooling's one element for each index


def cases() -> tuple[GpuCase, ...]:
    """All of them; calls that differed in their batch alone have become one."""
    batched = [_batched(call, dtype) for call in _calls() for dtype in _types(call)]
    forward = list({call.path: call for call in batched}.values())
    trained = [call for call in forward if (call.operator != "max_pool" or call.indices) and call.dtype in _TYPES[:2]]
    return (*(GpuCase(call, FORWARD) for call in forward), *(GpuCase(call, TRAINING) for call in trained))


def matching_gpu(patterns: Iterable[str]) -> tuple[GpuCase, ...]:
    """Cases whose path fits one of the patterns, in their order.

    Raises:
        ValueError: there is none.

    >>> [case.path for case in matching_gpu(["forward/max_unpool/ENet*/float32"])]
    ['forward/max_unpool/ENet unpool/float32']
    """
    found = tuple(case for case in cases() if any(fnmatchcase(case.path, pattern) for pattern in patterns))
    if not found:
        raise ValueError(f"gpu: expected cases, found none for {' '.join(patterns)}. See benchmarks/gpu/cases.py.")
    return found


def _calls() -> tuple[Call, ...]:
    everything = (*shapes.MAX_POOL, *shapes.MAX_UNPOOL, *shapes.CONV_TRANSPOSE, *HEADS)
    return tuple(call for call in everything if call.dtype == "float32")


def _types(call: Call) -> tuple[str, ...]:
    return _TYPES if call.operator == "conv_transpose" else _TYPES[:2]


def _batched(call: Call, dtype: str) -> Call:
    """The call with as many images as fill a device, but for the one that is to be tiny."""
    batch = call.shape[0] if call.name.startswith("tiny") else max(_BATCH, call.shape[0])
    name = call.name.partition(", ")[0] + (", values only" if "values only" in call.name else "")
    name += f", {call.layout}" * (call.layout != "NCHW")
    return replace(call, name=name, shape=(batch, *call.shape[1:]), dtype=dtype, goals={})
