"""What every random case begins with: version, type, layout, rank and leading sizes; and how a list is broken."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.cases.record import Case
from tests.cases.values import activations
from tests.oracle.rows import BFLOAT16, BYTES, FLOATS, LAYOUTS, types

LARGEST = {1: 11, 2: 6, 3: 4, 4: 3}
NEWEST_OPSET = 23
WIDEST = {1: 4, 2: 3, 3: 2, 4: 2}
Rng = np.random.Generator
Attributes = dict[str, Any]


def chance(rng: Rng, probability: float) -> bool:
    return bool(rng.random() < probability)


def pick(rng: Rng, items: Sequence[Any], weights: Sequence[float] | None = None) -> Any:
    share = None if weights is None else np.array(weights) / sum(weights)
    return items[int(rng.choice(len(items), p=share))]


def ints(rng: Rng, low: int, high: int, count: int) -> list[int]:
    """`count` numbers from low to high, both included."""
    return [int(value) for value in rng.integers(low, high + 1, count)]


class Draft:
    """What every operator's case begins with: version, type, layout, rank and the leading sizes."""

    def __init__(self, operator: str, rng: Rng) -> None:
        self.operator = operator
        self.rng = rng
        self.layout = pick(rng, ("NCHW", "NHWC"), (2, 1))
        self.compat = pick(rng, ("spec", "ort"), (4, 1))
        self.opset, self.version = self.draw_version()
        self.kind = self.draw_kind()
        self.rank = pick(rng, (1, 2, 3, 4), (35, 35, 20, 12))
        self.attributes: Attributes = {}

    def draw_version(self) -> tuple[int | None, int | None]:
        """An opset and the version it selects, every version of the layout as often; or None for the newest."""
        if chance(self.rng, 0.25):
            return None, None
        versions = LAYOUTS[self.layout][self.operator]
        version = pick(self.rng, versions)
        later = [other for other in versions if other > version]
        last = later[0] - 1 if later else NEWEST_OPSET
        return ints(self.rng, version, last, 1)[0], version

    def draw_kind(self) -> np.dtype[Any]:
        fitting = types(self.operator, self.version)
        if chance(self.rng, 0.03):
            return pick(self.rng, (*FLOATS, *BYTES, BFLOAT16, np.dtype(np.int32)))
        return pick(self.rng, fitting)

    def has(self, version: int) -> bool:
        return self.version is None or self.version >= version

    def maybe(self, probability: float, name: str, low: int, high: int, count: int | None = None) -> None:
        """Set a list attribute of `count` numbers, one per axis by default."""
        if chance(self.rng, probability):
            self.attributes[name] = ints(self.rng, low, high, self.rank if count is None else count)

    def sizes(self) -> list[int]:
        """Spatial sizes, rarely with an empty axis."""
        sizes = ints(self.rng, 1, LARGEST[self.rank], self.rank)
        if chance(self.rng, 0.03):
            sizes[int(self.rng.integers(self.rank))] = 0
        return sizes

    def outer(self) -> tuple[int, int]:
        """N and C, rarely empty."""
        if chance(self.rng, 0.04):
            return pick(self.rng, ((0, 2), (2, 0)))
        few = self.rank > 2
        return pick(self.rng, (1, 2)), pick(self.rng, (1, 2) if few else (1, 2, 3))

    def active(self) -> None:
        """Maybe an activation, right or wrong."""
        if chance(self.rng, 0.35 if self.layout == "NHWC" else 0.01):
            self.attributes.update(activations(self.rng, self.kind))

    def case(self, inputs: tuple[np.ndarray | None, ...], **more: Any) -> Case:
        """The finished record; input 0 is given channels-first and stored in the layout."""
        x = inputs[0]
        assert x is not None
        if self.layout == "NHWC" and x.ndim >= 3:
            x = np.ascontiguousarray(np.moveaxis(x, 1, -1))
        more |= {"opset": self.opset, "layout": self.layout, "compat": self.compat}
        return Case("", "", "", self.operator, (x, *inputs[1:]), self.attributes, **more)


def spoil_lists(draft: Draft) -> None:
    """Break one list attribute: its length, its values, or its presence."""
    rng, attributes, rank = draft.rng, draft.attributes, draft.rank
    lengths = {"kernel_shape": rank, "strides": rank, "pads": 2 * rank}
    if draft.operator != "MaxUnpool" and draft.has(10 if draft.operator == "MaxPool" else 1):
        lengths["dilations"] = rank
    name = pick(rng, tuple(lengths))
    values = [int(v) for v in attributes.get(name, [1] * lengths[name])]
    how = pick(rng, ("longer", "empty", "low"))
    if how == "longer":
        values.append(1)
    elif how == "empty":
        values = []
    else:
        values[int(rng.integers(len(values)))] = -1 if name == "pads" else pick(rng, (0, -1))
    attributes[name] = values
