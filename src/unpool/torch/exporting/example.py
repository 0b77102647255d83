"""Inputs for an export from texts such as 1x3xHxW: numbers are sizes, and names are dynamic dimensions."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from unpool.errors import UnpoolError
from unpool.torch.exporting.size_forms import SizeForm

SPATIAL_NAMES = {3: ("length",), 4: ("height", "width"), 5: ("depth", "height", "width")}
"""Rank of a tensor (N, C, D1..Dk) -> names of spatial axes that are dynamic without a name."""

DEFAULT_SIZES = {3: (256,), 4: (64, 96), 5: (32, 48, 64)}
"""Rank -> the spatial sizes of an example; all different, as torch would treat equal ones as one size."""

MIN_DYNAMIC = 2
"""The smallest size of a dynamic dimension in an example: torch's exporter treats 1 as a fixed size."""

TYPES = ("float32", "float16", "bfloat16", "float64", "uint8", "int8", "int32", "int64", "bool")
_SHAPE = re.compile(r"(?:(?P<name>\w[\w.]*)=)?(?P<sizes>[\w+]+)(?::(?P<type>\w+))?", re.ASCII)
_SIZE = re.compile(r"(\d*)([A-Za-z_]*)(?:\+(\d+))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ExampleAxis:
    """One axis of an input: its size in the example and, if it is dynamic, the form of its sizes."""

    size: int
    form: SizeForm | None = None


@dataclass(frozen=True)
class Example:
    """Inputs of a module and their dynamic dimensions, in the forms of both exporters of torch.

    Attributes:
        args: the tensors, in the order of the module's arguments.
        names: in the file.
        axes: of every tensor.
    """

    args: tuple[torch.Tensor, ...]
    names: tuple[str, ...]
    axes: tuple[tuple[ExampleAxis, ...], ...]

    @property
    def dynamic_shapes(self) -> tuple[dict[int, Any], ...] | None:
        """For torch's default exporter; None if all sizes are fixed."""
        shapes = tuple({at: form.dim for at, form in each.items()} for each in map(_forms, self.axes))
        return shapes if any(shapes) else None

    @property
    def dynamic_axes(self) -> dict[str, dict[int, str]]:
        """For the exporter with `dynamo=False`, by the name of the input."""
        by_name = zip(self.names, map(_forms, self.axes), strict=True)
        return {name: {position: str(form) for position, form in forms.items()} for name, forms in by_name if forms}


def example(*shapes: str, dynamic: bool = False, seed: int = 0) -> Example:
    """Inputs for `unpool.torch.export`, each written as `[NAME=]SIZExSIZEx..[:TYPE]`.

    A number is a size. A name, such as H, is a dynamic dimension. 8H is one for multiples of 8, and 2H+1 one for odd
    sizes. Equal names mean equal sizes.

    Args:
        shapes: one per input, in the order of the module's arguments; float32 unless they name another type.
        dynamic: True makes numeric batch and spatial sizes dynamic, too, with the names batch, height, width and so on.
            A size of 1 becomes 2 in the example, because torch treats 1 as a fixed size.
        seed: seed of the random numbers in the inputs.

    Raises:
        UnpoolError: a shape is not written in this form.

    Example:
        >>> image = example("image=1x3xHxW", dynamic=True)
        >>> image.args[0].shape, image.dynamic_axes
        (torch.Size([2, 3, 64, 96]), {'image': {0: 'batch', 2: 'H', 3: 'W'}})
        >>> example("1x3x224x224", dynamic=True).dynamic_axes["input"]
        {0: 'batch', 2: 'height', 3: 'width'}
        >>> example("1x3x8Hx8W").args[0].shape
        torch.Size([1, 3, 64, 96])
        >>> example("1x3x2H+1xW").dynamic_axes
        {'input': {2: '2*H + 1', 3: 'W'}}
    """
    inputs = [_parse(text) for text in shapes]
    names = [name or ("input" if len(inputs) == 1 else f"input_{at}") for at, (name, _, _) in enumerate(inputs)]
    if len(set(names)) < len(names):
        raise UnpoolError(f"example: expected inputs of different names, got {', '.join(names)}. Rename one.")
    bases: dict[str, int] = {}
    axes = tuple(tuple(_axes(sizes, bases, dynamic)) for _, sizes, _ in inputs)
    generator = torch.Generator().manual_seed(seed)
    types = [type_ for _, _, type_ in inputs]
    args = [_tensor([axis.size for axis in each], type_, generator) for each, type_ in zip(axes, types, strict=True)]
    return Example(tuple(args), tuple(names), axes)


def _parse(text: str) -> tuple[str, list[tuple[int, str, int]], str]:
    """The name of an input, a number, a name and an offset for every axis, and the element type."""
    parts = _SHAPE.fullmatch(text)
    words = [_SIZE.fullmatch(word) for word in parts["sizes"].split("x")] if parts else [None]
    type_ = (parts and parts["type"]) or TYPES[0]
    is_valid = all(word and word[0] and word[1] != "0" and (word[2] or not word[3]) for word in words)
    if parts is None or type_ not in TYPES or not is_valid:
        raise UnpoolError(
            "example: expected sizes with x between them, such as 1x3xHxW, image=1x3x224x224 or 1x3x8Hx8W:float16, "
            f"got {text!r}. Types are {', '.join(TYPES)}."
        )
    return parts["name"] or "", [(int(word[1] or 1), word[2], int(word[3] or 0)) for word in words if word], type_


def _axes(sizes: Sequence[tuple[int, str, int]], bases: dict[str, int], dynamic: bool) -> Iterator[ExampleAxis]:
    """The axes of an input; `bases` has the number of every name so far."""
    rank = len(sizes)
    default_sizes = (MIN_DYNAMIC, 1, *DEFAULT_SIZES.get(rank, (MIN_DYNAMIC,) * rank))
    default_names = ("batch", "", *SPATIAL_NAMES.get(rank, ("",) * rank))
    for position, (number, name, offset) in enumerate(sizes):
        if name:
            form = SizeForm(name, number, offset)
            base = bases.setdefault(name, max(MIN_DYNAMIC, -(-default_sizes[position] // number)))
            yield ExampleAxis(form.size(base), form)
        elif dynamic and default_names[position]:
            yield ExampleAxis(max(MIN_DYNAMIC, number), SizeForm(default_names[position]))
        else:
            yield ExampleAxis(number)


def _forms(axes: Sequence[ExampleAxis]) -> dict[int, SizeForm]:
    return {position: axis.form for position, axis in enumerate(axes) if axis.form is not None}


def _tensor(sizes: Sequence[int], type_: str, generator: torch.Generator) -> torch.Tensor:
    """Normal numbers for floats, 0 to 255 for uint8, and 0 or 1 for other integers."""
    dtype = getattr(torch, type_)
    if dtype.is_floating_point:
        return torch.randn(*sizes, generator=generator).to(dtype)
    return torch.randint(0, 256 if type_ == "uint8" else 2, tuple(sizes), generator=generator).to(dtype)
