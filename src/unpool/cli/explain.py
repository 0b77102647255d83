"""The work of `unpool explain`: settings as words on the command line, and the record as data."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from unpool.cli.exits import UsageError

if TYPE_CHECKING:
    from unpool.explanation.explain import Explanation

_INTEGERS = re.compile(r"\[?\s*-?\d+(\s*[,x]\s*-?\d+)*\s*\]?")


def settings_of(words: Sequence[str]) -> dict[str, Any]:
    """Values by name from words such as `strides=2,2`: integers, lists of integers, or text.

    >>> settings_of(["size=7x9", "kernel_shape=3", "pads=[0, 1, 0, 1]", "auto_pad=VALID"])
    {'size': [7, 9], 'kernel_shape': 3, 'pads': [0, 1, 0, 1], 'auto_pad': 'VALID'}
    """
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not (name and equals and text):
            raise UsageError(f"unpool explain: expected KEY=VALUE such as strides=2,2, got {word!r}. Write NAME=VALUE.")
        if name in found:
            raise UsageError(f"unpool explain: expected {name} once, got {word!r} as well. Drop one.")
        found[name] = _value(text)
    return found


def explained(operator: str, words: Sequence[str], keywords: dict[str, Any]) -> "Explanation":
    """The record of the library's `explain`; `keywords` holds its keywords that are no attributes."""
    from unpool.explanation.explain import explain

    settings = settings_of(words)
    reserved = sorted(settings.keys() & keywords.keys())
    if reserved:
        raise UsageError(f"unpool explain: {reserved[0]} is an option, got {reserved[0]}=... . Write --{reserved[0]}.")
    return explain(operator, **keywords, **settings)


def to_json(done: "Explanation") -> dict[str, Any]:
    """The same as JSON types."""
    return asdict(done)


def _value(text: str) -> Any:
    if not _INTEGERS.fullmatch(text):
        return text
    numbers = [int(number) for number in re.findall(r"-?\d+", text)]
    return numbers if len(numbers) > 1 or text.startswith("[") else numbers[0]
