"""Conversion of pixels to a model's numbers, and class names and colours: from options and from a model's metadata.

    unpool.input_scale, unpool.input_mean, unpool.input_std    as the options of `unpool run`
    unpool.input_white                                         the pixel value that means white in its pictures
    unpool.palette                                             colours of the classes, "#rrggbb,#rrggbb"
    classes                                                    their names, a JSON list or comma separated

`unpool export` writes it, as the options of the command line are written; `unpool run` reads it, and its options come
before all of these. A model is a file from anywhere: what it says is checked like what is typed.
"""

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unpool.cli.errors import UsageError
from unpool.cli.options import number, numbers, positive_numbers
from unpool.errors import UnpoolError
from unpool.images.overlay import Colour
from unpool.images.pixels import WHITE_LEVEL, Picture

DEEPEST = 65535.0
"""White of 16-bit files, most of which hold fewer bits without saying so."""


@dataclass(frozen=True)
class PixelRule:
    """Conversion of pixels: (pixel * 255 / white * scale - mean) / std, per channel; layout is nchw or nhwc.

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
        """True if pixels go in unchanged."""
        return self.white is None and self.has_no_steps

    @property
    def has_no_steps(self) -> bool:
        """True if pixels whose white is 255 go in unchanged."""
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
        is_partly_used = stored == DEEPEST and said is not None and WHITE_LEVEL < said < DEEPEST
        return said if stored is None or is_partly_used else stored

    def lit(self, picture: Picture) -> Picture:
        """The picture with the white that counts."""
        return replace(picture, white_level=self.white_of(picture.white_level))

    def notes(self, kind: np.dtype[Any], stored: float | None, is_for_numbers: bool, has_unit: bool) -> list[str]:
        """Assumptions about the numbers of a picture.

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
            return [] if white == WHITE_LEVEL else [f"its numbers go in as they are, as integers; {white:g} is white"]
        if stored is None:
            return [f"its numbers, {kind}, are read with {white:g} as white, as the model says"]
        if white != stored or white == (self.model_white or WHITE_LEVEL):
            return []
        if self.model_white is None:
            return [
                f"{white:g} is taken as white and goes in as 255, as in 8-bit pictures. --white 255 keeps the numbers"
            ]
        said = f"the model is for pictures whose white is {self.model_white:g}"
        return [f"its white is {white:g}, {said}: it is scaled"]

    def above(self, picture: Picture) -> list[str]:
        """A note about a 16-bit picture that is brighter than the model's white.

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


SCALE = "unpool.input_scale"
MEAN = "unpool.input_mean"
STD = "unpool.input_std"
WHITE = "unpool.input_white"
PALETTE = "unpool.palette"
CLASSES = "classes"

LONGEST, LONGEST_NAME = 2**20, 100
"""Characters of an entry, and of the name of a class."""

_OPTIONS = {SCALE: "--scale", MEAN: "--mean", STD: "--std", WHITE: "--white", PALETTE: "--palette"}
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")
_log = logging.getLogger("unpool.cli")


@dataclass(frozen=True)
class Metadata:
    """The entries of one model; `where` is what error messages begin with."""

    entries: Mapping[str, str]
    where: str

    def rule(self, given: PixelRule) -> PixelRule:
        """The rule for pixels: of each part what the options say, else what the model says.

        Raises:
            UnpoolError: an entry is not what it should be.
        """
        said = {name: text for name in (SCALE, MEAN, STD, WHITE) if (text := self._text(name)) is not None}
        if said:
            _log.info("%s says %s", self.where, ", ".join(f"{name} = {text}" for name, text in said.items()))
        try:
            found = PixelRule(
                scale=number(SCALE, said[SCALE]) if SCALE in said else None,
                mean=numbers(MEAN, said[MEAN]) if MEAN in said else None,
                std=positive_numbers(STD, said[STD]) if STD in said else None,
                model_white=positive_numbers(WHITE, said[WHITE])[0] if WHITE in said else None,
            )
        except UsageError as error:
            raise self._wrong(error) from error
        return given.filled(found)

    def palette(self) -> tuple[Colour, ...] | None:
        """Colours of the classes, or None.

        Raises:
            UnpoolError: the entry is not a list of colours.

        >>> Metadata({PALETTE: "#000000, #ff8000"}, "m.onnx").palette()
        ((0, 0, 0), (255, 128, 0))
        """
        text = self._text(PALETTE)
        try:
            return None if text is None else parsed(colours(PALETTE, text))
        except UsageError as error:
            raise self._wrong(error) from error

    def classes(self) -> list[str] | None:
        """Names of the classes, or None.

        Raises:
            UnpoolError: the entry is too long.
        """
        text = self._text(CLASSES)
        return None if text is None else split_names(text)

    def _wrong(self, error: UsageError) -> UnpoolError:
        return UnpoolError(f"{self.where}: its metadata, {error} Correct the model.")

    def _text(self, name: str) -> str | None:
        text = self.entries.get(name, "").strip()
        if len(text) > LONGEST:
            raise UnpoolError(f"{self.where}: its metadata, {name}: expected a short text, got {len(text)} characters.")
        return text or None


def entries(given: Mapping[str, str | None]) -> dict[str, str]:
    """The entries for the options that were given, as their texts are.

    Args:
        given: by the name of the entry, the text of its option, or None.

    Raises:
        UsageError: a text is no number, no colour, or there are fewer colours than classes.

    >>> entries({SCALE: "1/255", MEAN: None, CLASSES: "sky,tree"})
    {'unpool.input_scale': '1/255', 'classes': 'sky,tree'}
    """
    texts = {name: text.strip() for name, text in given.items() if text is not None}
    for name, check in ((SCALE, number), (MEAN, numbers), (STD, positive_numbers), (WHITE, positive_numbers)):
        if name in texts:
            check(_OPTIONS[name], texts[name])
    if PALETTE in texts:
        palette = colours(_OPTIONS[PALETTE], texts[PALETTE])
        texts[PALETTE] = ",".join(palette)
        names = split_names(texts[CLASSES]) if CLASSES in texts else palette
        if len(names) != len(palette):
            raise UsageError(
                f"--palette: expected a colour for each of the {len(names)} classes, got {len(palette)}. Name them all."
            )
    return texts


def colours(option: str, text: str) -> tuple[str, ...]:
    """Colours of classes, the first one of the first class; `option` is what the error message begins with.

    >>> colours("--palette", "#000000, #E69F00")
    ('#000000', '#e69f00')
    """
    found = tuple(part.strip().lower() for part in text.split(","))
    if not all(map(_COLOUR.fullmatch, found)):
        raise UsageError(
            f"{option}: expected colours such as #000000,#e69f00, got {text[:40]!r}. Write # and six digits for each."
        )
    return found


def parsed(texts: Iterable[str]) -> tuple[Colour, ...]:
    """Red, green and blue, 0 to 255, of colours as web pages write them.

    >>> parsed(["#000000", "#ff8000"])
    ((0, 0, 0), (255, 128, 0))
    """
    return tuple((int(one[1:3], 16), int(one[3:5], 16), int(one[5:7], 16)) for one in texts)


def split_names(text: str) -> list[str]:
    """Class names of a JSON list or a comma separated text.

    >>> split_names("background, coin"), split_names('["sky", "tree"]')
    (['background', 'coin'], ['sky', 'tree'])
    """
    names = text.split(",")
    if text.startswith("["):
        try:
            names = json.loads(text)
        except (json.JSONDecodeError, RecursionError):
            _log.info("the class names are not the JSON list they look like, reading them as comma separated")
    return [_printable(str(name)) for name in names]


def _printable(name: str) -> str:
    """A name that fits on a line and into a legend; what would steer a terminal becomes a space."""
    words = "".join(one if one.isprintable() else " " for one in name).split()
    return " ".join(words)[:LONGEST_NAME]
