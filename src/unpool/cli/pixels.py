"""How pixels become the numbers that a model takes: (pixel * 255 / white * scale - mean) / std."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unpool.cli.exits import UsageError
from unpool.images.pixels import WHITE, Picture

DEEPEST = 65535.0
"""White of 16-bit files, most of which hold fewer bits without saying so."""


@dataclass(frozen=True)
class PixelRule:
    """How pixels become numbers: (pixel * 255 / white * scale - mean) / std, per channel; layout is nchw or nhwc.

    Attributes:
        white: the value that means white; None: what the file says, and the pixels as they are where it says nothing.
        scale, mean, std: None leaves the step out; of mean and std one value, or one per channel.
        layout: nchw or nhwc.
        model_white: the value that means white in the pictures that the model is for, None where it does not say.
        pages: BATCH where the pages of a .tif are those of a batch; None: depth, or channels where they fit.
    """

    white: float | None = None
    scale: float | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    layout: str = "nchw"
    model_white: float | None = None
    pages: str | None = None

    @property
    def is_identity(self) -> bool:
        """Whether pixels go in as they are."""
        return self.white is None and self.has_no_steps

    @property
    def has_no_steps(self) -> bool:
        """Whether nothing is done to pixels whose white is 255."""
        return self.scale is None and self.mean is None and self.std is None

    def filled(self, other: "PixelRule") -> "PixelRule":
        """This rule, with the steps of another one where it has none.

        >>> PixelRule(scale=1.0).filled(PixelRule(scale=2.0, mean=(3.0,), model_white=255))
        PixelRule(white=None, scale=1.0, mean=(3.0,), std=None, layout='nchw', model_white=255, pages=None)
        """
        return replace(
            self,
            scale=other.scale if self.scale is None else self.scale,
            mean=other.mean if self.mean is None else self.mean,
            std=other.std if self.std is None else self.std,
            model_white=other.model_white,
        )

    def white_of(self, stored: float | None) -> float | None:
        """The white that counts for a file: of the caller, of the file, or of the model.

        The model's word counts where the file has none, and for 16-bit files, whose 65535 means no more than that
        their numbers have 16 bits, if its own white is a smaller one of more than 8 bits.

        Args:
            stored: what the file says.

        >>> [PixelRule(model_white=white).white_of(65535) for white in (None, 255, 4095)]
        [65535, 65535, 4095]
        """
        if self.white is not None:
            return self.white
        said = self.model_white
        is_partly_used = stored == DEEPEST and said is not None and WHITE < said < DEEPEST
        return said if stored is None or is_partly_used else stored

    def lit(self, picture: Picture) -> Picture:
        """The picture with the white that counts."""
        return replace(picture, white_level=self.white_of(picture.white_level))

    def notes(self, kind: np.dtype[Any], stored: float | None, is_for_numbers: bool, has_unit: bool) -> list[str]:
        """What is taken for granted about the numbers of a picture.

        Args:
            kind: the type of its numbers.
            stored: the white that the file says.
            is_for_numbers: the input takes integers of more than 8 bits, and so the numbers as they are.
            has_unit: the numbers are no light, as those of a NIfTI file.
        """
        white = self.white_of(stored)
        if self.white is not None or (white is None and has_unit):
            return []
        if white is None:
            return [
                f"its numbers, {kind}, go in as they are: the file does not say which one is white. --white says it"
            ]
        if is_for_numbers:
            return [] if white == WHITE else [f"its numbers go in as they are, as integers; {white:g} is white"]
        if stored is None:
            return [f"its numbers, {kind}, are read with {white:g} as white, as the model says"]
        if white != stored or white == (self.model_white or WHITE):
            return []
        if self.model_white is None:
            return [
                f"{white:g} is taken as white and goes in as 255, as in 8-bit pictures. --white 255 keeps the numbers"
            ]
        said = f"the model is for pictures whose white is {self.model_white:g}"
        return [f"its white is {white:g}, {said}: it is scaled"]

    def above(self, picture: Picture) -> list[str]:
        """What to say of a 16-bit picture that is brighter than the white that the model says.

        Args:
            picture: as the file has it.
        """
        white = self.white_of(picture.white_level)
        if self.white is not None or None in (white, picture.white_level) or white == picture.white_level:
            return []
        largest = picture.pixels.max(initial=0)
        told = f"its numbers go up to {largest:g}, above {white:g}, white as the model says. --white says another"
        return [told] if largest > white else []

    def apply(self, pixels: NDArray[Any], double: bool) -> NDArray[Any]:
        """Scaled pixels (..., C), computed in float64 when `double`, else in float32.

        >>> PixelRule(scale=0.5, mean=(1.0,)).apply(np.array([[4, 6]], np.uint8), double=False).tolist()
        [[1.0, 2.0]]
        """
        if self.has_no_steps:
            return pixels
        channels = pixels.shape[-1]
        values: NDArray[np.floating[Any]] = pixels.astype(np.float64 if double else np.float32)
        if self.scale is not None:
            values *= values.dtype.type(self.scale)
        if self.mean is not None:
            values -= _per_channel("mean", self.mean, channels, values.dtype)
        if self.std is not None:
            values /= _per_channel("std", self.std, channels, values.dtype)
        return values


def _per_channel(name: str, values: Sequence[float], channels: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    if len(values) not in (1, channels):
        expected = "1 value" if channels == 1 else f"1 value or {channels} (one per channel)"
        raise UsageError(
            f"--{name}: expected {expected}, got {len(values)}. Give as many, also where the model says others."
        )
    return np.array(values, dtype)
