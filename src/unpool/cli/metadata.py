"""What a model says of the pictures that it takes and the classes that it finds, in its metadata.

    unpool.input_scale, unpool.input_mean, unpool.input_std    as the options of `unpool run`
    unpool.input_white                                         the pixel value that means white in its pictures
    unpool.palette                                             colours of the classes, "#rrggbb,#rrggbb"
    classes                                                    their names, see `model`

Options come before all of these. A model is a file from anywhere: what it says is checked like what is typed.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from unpool.cli.exits import UsageError
from unpool.cli.image_metadata import MEAN, PALETTE, SCALE, STD, WHITE, colours
from unpool.cli.option_values import number, numbers, positive_numbers
from unpool.cli.overlay import Colour
from unpool.cli.pixels import PixelRule
from unpool.errors import UnpoolError

LONGEST = 2**20
"""Characters of an entry."""

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

    def _wrong(self, error: UsageError) -> UnpoolError:
        return UnpoolError(f"{self.where}: its metadata, {error} Correct the model.")

    def _text(self, name: str) -> str | None:
        text = self.entries.get(name, "").strip()
        if len(text) > LONGEST:
            raise UnpoolError(f"{self.where}: its metadata, {name}: expected a short text, got {len(text)} characters.")
        return text or None


def parsed(texts: Iterable[str]) -> tuple[Colour, ...]:
    """Red, green and blue, 0 to 255, of colours as web pages write them.

    >>> parsed(["#000000", "#ff8000"])
    ((0, 0, 0), (255, 128, 0))
    """
    return tuple((int(one[1:3], 16), int(one[3:5], 16), int(one[5:7], 16)) for one in texts)
