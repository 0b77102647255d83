"""What a lowered unpooling needs to know of the MaxPool whose choice it follows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unpool.geometry import Window, ceil_end


@dataclass(frozen=True)
class Pooling:
    """A MaxPool with explicit pads, the axes in the order (N, C, D1..Dk).

    Attributes:
        x: the value that is pooled.
        y: the largest values.
        windows: one per spatial axis.
        begins: padding before each axis, in elements.
        ends: padding behind each axis.
        ceil: whether the last window may hang over the end.
        large: spatial sizes of x; None where one of them is not known.
        small: spatial sizes of y; None likewise.
        dtype: element type of x.
    """

    x: str
    y: str
    windows: tuple[Window, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    ceil: bool
    large: tuple[int, ...] | None
    small: tuple[int, ...] | None
    dtype: np.dtype[np.generic]

    @property
    def rank(self) -> int:
        """How many spatial axes there are."""
        return len(self.windows)

    @property
    def strides(self) -> tuple[int, ...]:
        """One per spatial axis, in elements."""
        return tuple(window.stride for window in self.windows)

    @property
    def tap_count(self) -> int:
        """How many taps a window has."""
        return int(np.prod([window.size for window in self.windows]))

    def overhang(self) -> tuple[int, ...]:
        """How many elements the windows at most reach beyond the end of x, per axis: exactly so, if sizes are known."""
        if self.large is None or self.small is None:
            return tuple(
                ceil_end(window, end) if self.ceil else min(window.reach - 1, end)
                for window, end in zip(self.windows, self.ends, strict=True)
            )
        spans = self.spans(self.small)
        return tuple(
            max(0, span - begin - large) for span, begin, large in zip(spans, self.begins, self.large, strict=True)
        )

    def spans(self, small: Sequence[int]) -> tuple[int, ...]:
        """Elements from the first tap of the first window to the last tap of the last, for these sizes of y."""
        return tuple(
            (size - 1) * window.stride + window.reach for size, window in zip(small, self.windows, strict=True)
        )
