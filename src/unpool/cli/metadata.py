"""Conversion of pixels to a model's numbers, and class names and colours: from options and from a model's metadata.

    unpool.input_scale, unpool.input_mean, unpool.input_std    as the options of `unpool run`
    unpool.input_white                                         the pixel value that means white in its pictures
    unpool.palette                                             colours of the classes, "#rrggbb,#rrggbb"
    classes                                                    their names, a JSON list or comma separated

`unpool export` writes these entries; `unpool run` reads them, and its options win. They are checked like options.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unpool.cli.class_texts import colours, palette_of, split_names
from unpool.cli.errors import UsageError
from unpool.cli.options import number, numbers, positive_numbers
from unpool.cli.run_config import RunConfig
from unpool.errors import UnpoolError
from unpool.images.overlay import Colour
from unpool.images.pixels import WHITE_LEVEL, Picture

DEEPEST = 65535.0  # white of 16-bit files; most of them have fewer bits, which they do not state
SCALE, MEAN, STD = "unpool.input_scale", "unpool.input_mean", "unpool.input_std"
WHITE, PALETTE, CLASSES = "unpool.input_white", "unpool.palette", "classes"
ENTRIES = (SCALE, MEAN, STD, WHITE, PALETTE, CLASSES)
LONGEST = 2**20  # characters of an entry
_PARSERS: Mapping[str, Any] = {SCALE: number, MEAN: numbers, STD: positive_numbers, WHITE: positive_numbers}
_OPTIONS = {SCALE: "--scale", MEAN: "--mean", STD: "--std", WHITE: "--white", PALETTE: "--palette"}
_log = logging.getLogger("unpool.cli")


@dataclass(frozen=True)
class PixelRule:
    """Conversion of pixels, (pixel * 255 / white * scale - mean) / std per channel, as options and model have it."""

    white: float | None = None  # from the options; None: from the file, or the pixels unchanged
    scale: float | None = None  # None leaves a step out
    mean: tuple[float, ...] | None = None  # one value, or one per channel
    std: tuple[float, ...] | None = None
    layout: str = "nchw"
    model_white: float | None = None  # of the pictures that the model is for
    pages: str | None = None  # BATCH: the pages of a .tif are a batch; None: depth, or channels where they fit

    def white_of(self, stored: float | None) -> float | None:
        """The white that counts for a file that says `stored`: of the options, of the file, or of the model.

        The model's counts where the file has none, and if it has between 8 and 16 bits and the file says 65535, which
        means no more than 16 bits.

        >>> [PixelRule(model_white=white).white_of(65535) for white in (None, 255, 4095)]
        [65535, 65535, 4095]
        """
        if self.white is not None:
            return self.white
        model = self.model_white
        is_partly_used = stored == DEEPEST and model is not None and WHITE_LEVEL < model < DEEPEST
        return model if stored is None or is_partly_used else stored

    def notes(self, kind: np.dtype[Any], stored: float | None, is_for_numbers: bool, has_unit: bool) -> list[str]:
        """Assumptions about the numbers of a picture, of type `kind`, whose file says that `stored` is white.

        `is_for_numbers`: the input takes integers of more than 8 bits, and so the numbers as they are. `has_unit`: the
        numbers are no light, as those of a NIfTI file.
        """
        white = self.white_of(stored)
        if self.white is not None or (white is None and has_unit):
            return []
        if white is None:
            note = f"its numbers, {kind}, go in as they are: the file does not say which one is white. --white says it"
        elif is_for_numbers:
            note = "" if white == WHITE_LEVEL else f"its numbers go in as they are, as integers; {white:g} is white"
        elif stored is None:
            note = f"its numbers, {kind}, are read with {white:g} as white, as the model says"
        elif white != stored or white == (self.model_white or WHITE_LEVEL):
            note = ""
        elif self.model_white is None:
            note = f"{white:g} is taken as white and goes in as 255, as in 8-bit pictures"
            note += ". --white 255 keeps the numbers"
        else:
            note = f"its white is {white:g}, the model is for pictures whose white is {self.model_white:g}"
            note += ": it is scaled"
        return [note] if note else []

    def above(self, picture: Picture) -> list[str]:
        """A note about a 16-bit picture, as the file has it, that is brighter than the model's white."""
        white = self.white_of(picture.white_level)
        if self.white is not None or None in (white, picture.white_level) or white == picture.white_level:
            return []
        largest = picture.pixels.max(initial=0)
        note = f"its numbers go up to {largest:g}, above {white:g}, white as the model says. --white says another"
        return [note] if largest > white else []

    def settings(self) -> dict[str, Any]:
        """The steps as JSON has them, by the names of their options, and the white of the model."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}

    def apply(self, pixels: NDArray[Any], double: bool) -> NDArray[Any]:
        """Scaled pixels (..., C), computed in float64 when `double`, else in float32."""
        if self.scale is None and self.mean is None and self.std is None:
            return pixels
        values: NDArray[np.floating[Any]] = pixels.astype(np.float64 if double else np.float32)
        if self.scale is not None:
            values *= values.dtype.type(self.scale)
        if self.mean is not None:
            values -= _per_channel("mean", self.mean, values)
        if self.std is not None:
            values /= _per_channel("std", self.std, values)
        return values


def _per_channel(name: str, numbers: Sequence[float], values: NDArray[Any]) -> NDArray[Any]:
    channels = values.shape[-1]
    if len(numbers) not in (1, channels):
        expected = "1 value" if channels == 1 else f"1 value or {channels} (one per channel)"
        raise UsageError(
            f"--{name}: expected {expected}, got {len(numbers)}. Pass --{name} with as many, which replace the model's."
        )
    return np.array(numbers, values.dtype)


@dataclass(frozen=True)
class Metadata:
    """The entries of one model; `where` is what error messages begin with."""

    entries: Mapping[str, str]
    where: str

    def pixel_rule(self, config: RunConfig) -> PixelRule:
        """Each step from the options, else from the model; UnpoolError for an invalid entry."""
        texts = {name: text for name in _PARSERS if (text := self._text(name)) is not None}
        if texts:
            _log.info("%s says %s", self.where, ", ".join(f"{name} = {text}" for name, text in texts.items()))
        values = {name: self._checked(name, _PARSERS[name], text) for name, text in texts.items()}
        return PixelRule(
            white=config.white,
            scale=values.get(SCALE) if config.scale is None else config.scale,
            mean=values.get(MEAN) if config.mean is None else config.mean,
            std=values.get(STD) if config.std is None else config.std,
            layout=config.layout,
            model_white=values[WHITE][0] if WHITE in values else None,
            pages=config.pages,
        )

    def palette(self) -> tuple[Colour, ...] | None:
        """Colours of the classes, or None."""
        text = self._text(PALETTE)
        return None if text is None else self._checked(PALETTE, palette_of, text)

    def classes(self) -> list[str] | None:
        """Names of the classes, or None."""
        text = self._text(CLASSES)
        return None if text is None else split_names(text)

    def _checked(self, name: str, parse: Any, text: str) -> Any:
        try:
            return parse(name, text)
        except UsageError as error:
            raise UnpoolError(f"{self.where}: its metadata, {error} Change this entry of the model.") from error

    def _text(self, name: str) -> str | None:
        text = self.entries.get(name, "").strip()
        if len(text) > LONGEST:
            raise UnpoolError(f"{self.where}: its metadata, {name}: expected a short text, got {len(text)} characters.")
        return text or None


def entries(texts: Mapping[str, str | None]) -> dict[str, str]:
    """The entries for the options that are given, by the name of the entry; their texts are checked and kept.

    >>> entries({SCALE: "1/255", MEAN: None, CLASSES: "sky,tree"})
    {'unpool.input_scale': '1/255', 'classes': 'sky,tree'}
    """
    stripped = {name: text.strip() for name, text in texts.items() if text is not None}
    for name, parse in _PARSERS.items():
        if name in stripped:
            parse(_OPTIONS[name], stripped[name])
    if PALETTE in stripped:
        palette = colours(_OPTIONS[PALETTE], stripped[PALETTE])
        stripped[PALETTE] = ",".join(palette)
        names = split_names(stripped[CLASSES]) if CLASSES in stripped else palette
        if len(names) != len(palette):
            expected = f"a colour for each of the {len(names)} classes"
            raise UsageError(f"--palette: expected {expected}, got {len(palette)}. Name them all.")
    return stripped
