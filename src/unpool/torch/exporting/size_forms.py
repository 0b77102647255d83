"""Forms of dynamic sizes, such as 8H and 2H+1, and the search for the one that a model takes."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch.export import Dim

UNBOUNDED = 2**31
MAX_STEP = 64
"""The largest step between sizes that is looked for."""

STEPS = (1, *(2**power for power in range(1, 7)), *range(3, MAX_STEP))
"""The steps, in the order in which they are tried: a network that pools has a power of 2."""

REPEATS = 3
"""Number of sizes above the example's that a step has to reach."""

_FORM = re.compile(r"(?:(\d+)\*)?([A-Za-z_]\w*)(?: ([+-]) (\d+))?")


@dataclass(frozen=True, slots=True)
class SizeForm:
    """The sizes factor * n + offset, for n from `minimum` to `maximum`.

    `str` is the name of the axis in a file, and the name that torch gives the Dim.
    """

    name: str
    factor: int = 1
    offset: int = 0
    minimum: int = 0
    maximum: int = UNBOUNDED

    def __str__(self) -> str:
        offset = f" {'-' if self.offset < 0 else '+'} {abs(self.offset)}" if self.offset else ""
        return f"{f'{self.factor}*' if self.factor > 1 else ''}{self.name}{offset}"

    @property
    def text(self) -> str:
        """As in the text of an example."""
        return str(self).replace("*", "").replace(" ", "")

    @property
    def code(self) -> str:
        """As an expression in dynamic_shapes."""
        bounds = {"min": self.minimum or None, "max": self.maximum if self.maximum < UNBOUNDED else None}
        words = "".join(f", {name}={value}" for name, value in bounds.items() if value is not None)
        return str(self).replace("*", " * ").replace(self.name, f"torch.export.Dim('{self.name}'{words})")

    @property
    def dim(self) -> Any:
        """As torch's Dim."""
        bounds = {"min": self.minimum or None, "max": self.maximum if self.maximum < UNBOUNDED else None}
        dim: Any = Dim(self.name, **bounds)
        dim = self.factor * dim if self.factor > 1 else dim
        return dim + self.offset if self.offset else dim

    def size(self, n: int) -> int:
        """The size of a number."""
        return self.factor * n + self.offset

    def number(self, size: int) -> int:
        """The number of a size."""
        return (size - self.offset) // self.factor

    def clamp(self, n: int) -> int:
        """The nearest number in the range whose size has elements."""
        smallest = max(self.minimum, -(self.offset - 1) // self.factor)
        return max(smallest, min(self.maximum, n))

    def every(self, step: int, size: int) -> "SizeForm":
        """Every `step`-th size of this form, among them `size`, in the same range."""
        factor = step * self.factor
        offset = size % factor
        low, high = self.size(self.minimum), self.size(self.maximum)
        maximum = UNBOUNDED if self.maximum >= UNBOUNDED else (high - offset) // factor
        return replace(self, factor=factor, offset=offset, minimum=max(0, -((offset - low) // factor)), maximum=maximum)


def parse_form(text: str) -> SizeForm | None:
    """The form of an axis name or the name of a Dim; None if it has another one.

    >>> parse_form("2*rows + 1"), parse_form("rows // 2")
    (SizeForm(name='rows', factor=2, offset=1, minimum=0, maximum=2147483648), None)
    """
    parts = _FORM.fullmatch(text)
    if parts is None:
        return None
    return SizeForm(parts[2], int(parts[1] or 1), int(f"{parts[3] or '+'}{parts[4] or 0}"))


def narrow(form: SizeForm, size: int, accepts: Callable[[int], bool]) -> SizeForm | None:
    """The largest part of a form's sizes with the example's `size` that a model accepts; None if no step leads to one.

    >>> narrow(SizeForm("H"), 64, lambda size: size % 8 < 2)
    SizeForm(name='H', factor=8, offset=0, minimum=0, maximum=2147483648)
    """
    n = (size - form.offset) // form.factor
    for step in STEPS:
        larger = [n + count * step for count in range(1, REPEATS + 1) if n + count * step <= form.maximum]
        if larger and all(accepts(form.size(each)) for each in larger):
            return form.every(step, size)
    return None


def advice(forms: Sequence[SizeForm], has_unpool: bool) -> str:
    """Advice about sizes that a model does not accept: the forms to write, if there are any."""
    choices = ["pass output_size to every unpooling"] if has_unpool else []
    if forms:
        codes, texts = (
            " and ".join(dict.fromkeys(words)) for words in zip(*((f.code, f.text) for f in forms), strict=True)
        )
        choices.append(f"write {codes}, as {texts} in the text of an example")
    choices += [] if forms else ["fix the size"]
    text = ", or ".join(choices)
    return f"{text[0].upper()}{text[1:]}."
