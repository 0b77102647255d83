"""Names and colours of classes as texts: of options, and of a model's metadata."""

import json
import logging
import re

from unpool.cli.errors import UsageError
from unpool.images.overlay import Colour

LONGEST_NAME = 100  # characters of the name of a class
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")
_log = logging.getLogger("unpool.cli")


def colours(option: str, text: str) -> tuple[str, ...]:
    """Colours of classes as web pages write them; `option` begins the error message."""
    texts = tuple(part.strip().lower() for part in text.split(","))
    if not all(map(_COLOUR.fullmatch, texts)):
        expected = "colours such as #000000,#e69f00"
        raise UsageError(f"{option}: expected {expected}, got {text[:40]!r}. Write # and six digits for each.")
    return texts


def palette_of(option: str, text: str) -> tuple[Colour, ...]:
    """Red, green and blue, 0 to 255, of `colours`.

    >>> palette_of("--palette", "#000000, #FF8000")
    ((0, 0, 0), (255, 128, 0))
    """
    return tuple((int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)) for text in colours(option, text))


def split_names(text: str) -> list[str]:
    """Class names of a JSON list or a comma separated text, each fit for a line and a legend.

    >>> split_names("background, coin"), split_names('["sky", "tree"]')
    (['background', 'coin'], ['sky', 'tree'])
    """
    names = text.split(",")
    if text.startswith("["):
        try:
            names = json.loads(text)
        except (json.JSONDecodeError, RecursionError):
            _log.info("the class names are not the JSON list they look like, reading them as comma separated")
    # control characters, which could steer a terminal, become spaces
    printable = ("".join(letter if letter.isprintable() else " " for letter in str(name)) for name in names)
    return [" ".join(name.split())[:LONGEST_NAME] for name in printable]
