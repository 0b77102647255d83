"""What is measured: an operator on a shape, its training or a whole network, with what is to be reached."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from unpool.geometry import Window, pooled_size, upsampled_size

POOLED, FRESH, OWN = "pooled", "fresh", "own"
INDEX_BYTES = 8


@dataclass(frozen=True)
class Goal:
    """Times faster than a peer.

    Attributes:
        must: the peer's median over ours.
        stretch: the same, further on.
        against: the peer; "" is the fastest of all.
        limit_share: in place of `stretch`, the machine's limit over our median.
    """

    must: float
    stretch: float | None = None
    against: str = ""
    limit_share: float | None = None


@dataclass(frozen=True, kw_only=True)
class Case:
    """A whole network, or what calls of operators and their training have in common with it.

    Attributes:
        suite: which cases are written into one file.
        operator: max_pool, max_unpool, conv_transpose, training or network.
        name: of the network, or after a network that makes the call.
        shape: (N, C, spatial); of X, for max_unpool of the output, in the order of NCHW whatever the layout.
        dtype: storage type of the values.
        goals: by kind of outputs: "pooled" into memory that was written before, "fresh" into memory that was not.
        peers: names of the engines that unpool is compared with; empty for all.
    """

    suite: str
    operator: str
    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    peers: tuple[str, ...] = ()
    goals: Mapping[str, Goal] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """What no other case has: suite, name and type."""
        return f"{self.suite}/{self.name}/{self.dtype}"

    @property
    def numpy_type(self) -> np.dtype[Any]:
        """The type of the values."""
        return np.dtype(ml_dtypes.bfloat16) if self.dtype == "bfloat16" else np.dtype(self.dtype)

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.shape) - 2

    @property
    def title(self) -> str:
        """Shape and attributes in one line."""
        return _text(self.shape)

    @property
    def read(self) -> int:
        """Minimum bytes read; 0 where it is not known."""
        return 0

    @property
    def written(self) -> int:
        """Minimum bytes written; 0 where it is not known."""
        return 0

    @property
    def flops(self) -> int:
        """Floating-point operations, products and sums; 0 where it is not known."""
        return 0


@dataclass(frozen=True, kw_only=True)
class Call(Case):
    """One call of an operator; sizes hold for every spatial axis, in elements.

    Attributes:
        window: its size.
        stride: between windows.
        pad: at each end.
        dilation: between the taps of a window.
        layout: NCHW or NHWC.
        indices: whether max_pool returns indices too.
        channels: of the output of conv_transpose.
        group: of conv_transpose.
    """

    window: int
    stride: int
    pad: int = 0
    dilation: int = 1
    layout: str = "NCHW"
    indices: bool = False
    channels: int = 0
    group: int = 1

    @property
    def title(self) -> str:
        """Shape and attributes in one line.

        >>> Call(suite="s", operator="max_pool", name="n", shape=(1, 64, 9, 9), window=3, stride=2, pad=1).title
        '(1,64,9,9) k3 s2 p1'
        """
        n, c, *spatial = self.shape
        grown = f"→{self.channels}" if self.operator == "conv_transpose" else ""
        words = [_text((n, *spatial, c) if self.layout == "NHWC" else self.shape) + grown]
        words += [f"k{self.window}", f"s{self.stride}"]
        words += [f"p{self.pad}"] if self.pad else []
        words += [f"d{self.dilation}"] if self.dilation > 1 else []
        words += [f"g{self.group}"] if self.group > 1 else []
        return " ".join(words)

    @property
    def x_shape(self) -> tuple[int, ...]:
        """(N, C, spatial) of X."""
        return self._pooled if self.operator == "max_unpool" else self.shape

    @property
    def y_shape(self) -> tuple[int, ...]:
        """(N, C, spatial) of the first output."""
        if self.operator == "max_unpool":
            return self.shape
        if self.operator == "max_pool":
            return self._pooled
        grown = (upsampled_size(size, self._window, padding=2 * self.pad) for size in self.shape[2:])
        return (self.shape[0], self.channels, *grown)

    @property
    def w_shape(self) -> tuple[int, ...]:
        """(C, M/group, window) of the weights of conv_transpose."""
        return (self.shape[1], self.channels // self.group, *[self.window] * self.rank)

    @property
    def read(self) -> int:
        """Bytes of all inputs."""
        count = math.prod(self.x_shape) * self.numpy_type.itemsize
        if self.operator == "max_unpool":
            return count + math.prod(self.x_shape) * INDEX_BYTES
        if self.operator == "conv_transpose":
            return count + math.prod(self.w_shape) * self.numpy_type.itemsize
        return count

    @property
    def written(self) -> int:
        """Bytes of all outputs."""
        return math.prod(self.y_shape) * (self.numpy_type.itemsize + INDEX_BYTES * self.indices)

    @property
    def flops(self) -> int:
        """A product and a sum for every element of X, output channel of its group and tap of conv_transpose.

        As the operator is defined: what fast algorithms save and what padding cuts off counts too.
        """
        if self.operator != "conv_transpose":
            return 0
        return 2 * math.prod(self.shape) * math.prod(self.w_shape[1:])

    @property
    def _window(self) -> Window:
        return Window(self.window, self.stride, self.dilation)

    @property
    def _pooled(self) -> tuple[int, ...]:
        spatial = (pooled_size(size, self._window, self.pad, self.pad, ceil=False) for size in self.shape[2:])
        return (*self.shape[:2], *spatial)


@dataclass(frozen=True, kw_only=True)
class Training(Case):
    """Forward and backward through a call.

    Attributes:
        call: the forward.
    """

    call: Call

    @property
    def title(self) -> str:
        """The operator, then shape and attributes."""
        return f"{self.call.operator} {self.call.title}"


def _text(shape: tuple[int, ...]) -> str:
    return f"({','.join(map(str, shape))})"
