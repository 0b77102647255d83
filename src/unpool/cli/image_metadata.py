"""What a model says of the pictures that it takes and of the classes that it tells apart, in its metadata.

`unpool export` writes it, as the options of the command line write it; `unpool run` reads it.
"""

import re
from collections.abc import Mapping

from unpool.cli.exits import UsageError
from unpool.cli.model import split_names
from unpool.cli.option_values import number, numbers, positive_numbers

SCALE = "unpool.input_scale"
MEAN = "unpool.input_mean"
STD = "unpool.input_std"
WHITE = "unpool.input_white"
PALETTE = "unpool.palette"
CLASSES = "classes"

_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")


def colours(option: str, text: str) -> tuple[str, ...]:
    """Colours of classes, the first one of the first class; `option` is what the error message begins with.

    >>> colours("--palette", "#000000, #E69F00")
    ('#000000', '#e69f00')
    """
    found = tuple(part.strip().lower() for part in text.split(","))
    if not all(map(_COLOUR.fullmatch, found)):
        raise UsageError(f"{option}: expected colours such as #000000,#e69f00, got {text[:40]!r}. Correct it.")
    return found


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


_OPTIONS = {SCALE: "--scale", MEAN: "--mean", STD: "--std", WHITE: "--white", PALETTE: "--palette"}
