"""What a model says of the pictures that it takes and the classes that it finds, in its metadata.

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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from unpool.cli.exits import UsageError
from unpool.cli.option_values import number, numbers, positive_numbers
from unpool.cli.pixels import PixelRule
from unpool.errors import UnpoolError
from unpool.images.overlay import Colour

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
