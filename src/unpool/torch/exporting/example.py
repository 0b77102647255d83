"""Inputs for an export, written as a shape: numbers are sizes, and names are sizes that stay open."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import Dim

from unpool.errors import UnpoolError

SPATIAL = {3: ("length",), 4: ("height", "width"), 5: ("depth", "height", "width")}
"""By rank of a tensor (N, C, D1..Dk), what spatial axes are called where the caller only says that they are open."""

LENGTHS = {3: (256,), 4: (64, 96), 5: (32, 48, 64)}
"""By rank, the spatial sizes of an example; of two axes not the same, for torch would take them for one size."""

LEAST = 2
"""The smallest size of an axis that stays open: torch's exporter takes 1 for a size that is fixed."""

TYPES = ("float32", "float16", "bfloat16", "float64", "uint8", "int8", "int32", "int64", "bool")
_SHAPE = re.compile(r"(?:(?P<name>\w[\w.]*)=)?(?P<sizes>\w+)(?::(?P<type>\w+))?", re.ASCII)
_SIZE = re.compile(r"(\d*)([A-Za-z_]*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of an input: its size in the example and, if it stays open, its name and what it is a multiple of."""

    size: int
    name: str = ""
    times: int = 1


@dataclass(frozen=True)
class Example:
    """Inputs of a module, and what of their sizes stays open, in the words of both exporters of torch.

    Attributes:
        args: the tensors, in the order of the module's arguments.
        names: what the file calls them.
        axes: of every tensor.
    """

    args: tuple[torch.Tensor, ...]
    names: tuple[str, ...]
    axes: tuple[tuple[Axis, ...], ...]

    @property
    def dynamic_shapes(self) -> tuple[dict[int, Any], ...] | None:
        """For torch's default exporter; None where all sizes are fixed."""
        dims = {axis.name: Dim(axis.name) for own in self.axes for axis in own if axis.name}
        found = tuple(
            {place: axis.times * dims[axis.name] if axis.times > 1 else dims[axis.name] for place, axis in _open(own)}
            for own in self.axes
        )
        return found if dims else None

    @property
    def dynamic_axes(self) -> dict[str, dict[int, str]]:
        """For the exporter with `dynamo=False`, by the name of the input."""
        pairs = zip(self.names, self.axes, strict=True)
        return {name: {place: axis.name for place, axis in _open(own)} for name, own in pairs if _open(own)}


def example(*shapes: str, dynamic: bool = False, seed: int = 0) -> Example:
    """Inputs for `unpool.torch.export`, each written as `[NAME=]SIZExSIZEx..[:TYPE]`.

    A number is a size. A name, such as H, is a size that stays open; 8H stays open for multiples of 8. Open sizes have
    the same size wherever they have the same name.

    Args:
        shapes: one per input, in the order of the module's arguments; float32 unless they say another type.
        dynamic: whether batch and spatial sizes that are numbers stay open too, as batch, height, width and so on. A
            size of 1 becomes 2 in the example, for torch takes 1 for a fixed size.
        seed: of the random numbers that the inputs are made of.

    Raises:
        UnpoolError: a text that is no such shape.

    Example:
        >>> image = example("image=1x3xHxW", dynamic=True)
        >>> image.args[0].shape, image.dynamic_axes
        (torch.Size([2, 3, 64, 96]), {'image': {0: 'batch', 2: 'H', 3: 'W'}})
        >>> example("1x3x224x224", dynamic=True).dynamic_axes["input"]
        {0: 'batch', 2: 'height', 3: 'width'}
        >>> example("1x3x8Hx8W").args[0].shape
        torch.Size([1, 3, 64, 96])
    """
    texts = [_Text.read(text) for text in shapes]
    names = [text.name or ("input" if len(texts) == 1 else f"input_{place}") for place, text in enumerate(texts)]
    if len(set(names)) < len(names):
        raise UnpoolError(f"example: expected inputs of different names, got {', '.join(names)}. Rename one.")
    bases: dict[str, int] = {}
    axes = tuple(tuple(_axes(text, bases, dynamic)) for text in texts)
    generator = torch.Generator().manual_seed(seed)
    args = [_tensor([axis.size for axis in own], text.type, generator) for own, text in zip(axes, texts, strict=True)]
    return Example(tuple(args), tuple(names), axes)


@dataclass(frozen=True, slots=True)
class _Text:
    """What a text says: the name of the input, a number and a name for every axis, and the element type."""

    name: str
    sizes: tuple[tuple[int, str], ...]
    type: str

    @classmethod
    def read(cls, text: str) -> "_Text":
        found = _SHAPE.fullmatch(text)
        words = [_SIZE.fullmatch(word) for word in found["sizes"].split("x")] if found else [None]
        type_ = (found and found["type"]) or TYPES[0]
        if found is None or type_ not in TYPES or not all(word and word[0] and word[1] != "0" for word in words):
            raise UnpoolError(
                "example: expected sizes with x between them, such as 1x3xHxW, image=1x3x224x224 or 1x3x8Hx8W:float16, "
                f"got {text!r}. Types are {', '.join(TYPES)}."
            )
        return cls(found["name"] or "", tuple((int(word[1] or 1), word[2]) for word in words if word), type_)


def _axes(text: _Text, bases: dict[str, int], dynamic: bool) -> Iterator[Axis]:
    """The axes of an input; `bases` has the example's number for every name so far."""
    rank = len(text.sizes)
    usual = (LEAST, 1, *LENGTHS.get(rank, (LEAST,) * rank))
    usual_names = ("batch", "", *SPATIAL.get(rank, ("",) * rank))
    for place, (number, name) in enumerate(text.sizes):
        if name:
            base = bases.setdefault(name, max(LEAST, -(-usual[place] // number)))
            yield Axis(base * number, name, number)
        elif dynamic and usual_names[place]:
            yield Axis(max(LEAST, number), usual_names[place])
        else:
            yield Axis(number)


def _open(axes: Sequence[Axis]) -> list[tuple[int, Axis]]:
    """The axes that stay open, each with its place."""
    return [(place, axis) for place, axis in enumerate(axes) if axis.name]


def _tensor(sizes: Sequence[int], type_: str, generator: torch.Generator) -> torch.Tensor:
    """Normal numbers for floats, 0 to 255 for uint8, and 0 or 1 for other integers."""
    dtype = getattr(torch, type_)
    if dtype.is_floating_point:
        return torch.randn(*sizes, generator=generator).to(dtype)
    return torch.randint(0, 256 if type_ == "uint8" else 2, tuple(sizes), generator=generator).to(dtype)
