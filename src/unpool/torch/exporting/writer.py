"""What each of torch's two exporters has to be able to do, so that `nodes` can write pools and unpoolings with it."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from unpool.geometry import UnpoolWindow


class PoolBehind(NamedTuple):
    """What is known of the MaxPool that found some indices.

    Attributes:
        windows: one per spatial axis, see `windows.pool_windows`.
        planes: elements in a plane of the MaxPool's output and of its input; None where a size is dynamic, and where
            the indices did not come from the MaxPool by the nodes that `nodes.write_max_pool` writes.
    """

    windows: list[UnpoolWindow | None]
    planes: tuple[int, int] | None


class Writer(Protocol):
    """Reads sizes and writes nodes in one of torch's exporters.

    A value is what that exporter's nodes take and give. A size is an int where it is static, and where it is dynamic an
    int64 value with one element. Where a method takes a value, an int stands for a constant.
    """

    @property
    def opset(self) -> int:
        """The opset in which nodes are written."""

    def known_sizes(self, x: Any) -> list[int | None]:
        """Elements along every axis, None where they are dynamic; writes no node."""

    def size(self, x: Any, axis: int) -> Any:
        """The size along one axis."""

    def node(self, op_type: str, *inputs: Any, **attributes: Any) -> Any:
        """The output of a new node."""

    def constant(self, numbers: npt.NDArray[np.int64]) -> Any:
        """A constant."""

    def vector(self, sizes: Sequence[Any]) -> Any:
        """The sizes as one int64 value of one axis."""

    def reshaped(self, x: Any, sizes: Sequence[Any]) -> Any:
        """The value in another shape; one of the sizes may be -1."""

    def numbers_below(self, count: Any) -> Any:
        """The numbers from 0 to `count` - 1."""

    def with_batch(self, x: Any) -> Any:
        """The value with an axis of one element in front."""

    def without_batch(self, x: Any) -> Any:
        """The value without its first axis, which has one element."""

    def max_pool(self, x: Any, attributes: dict[str, Any], sizes: Any, *, with_indices: bool) -> list[Any]:
        """The values of a MaxPool, and with_indices its indices too.

        Args:
            x: with a batch axis.
            attributes: with ONNX names.
            sizes: known sizes along the spatial axes, a list for the input and one for the output.
            with_indices: whether the indices are needed.
        """

    def in_plane(self, indices: Any, plane: Any) -> Any:
        """Indices of a MaxPool, counted inside planes with so many elements."""

    def max_unpool(self, inputs: Sequence[Any], attributes: dict[str, Any], large: Sequence[Any]) -> Any:
        """The output of a MaxUnpool, which has the sizes `large` along its spatial axes."""

    def pool_behind(self, indices: Any, rank: int) -> PoolBehind | None:
        """The MaxPool that found indices for an unpooling over `rank` axes, None if something else made them."""

    def as_pooled(self, indices: Any) -> Any:
        """Indices that have a pool behind them, counted over the whole tensor again, as its MaxPool counts them."""
