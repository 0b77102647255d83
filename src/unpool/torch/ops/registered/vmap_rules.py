"""Rules with which `torch.vmap` makes one call of an operator out of many.

The many calls lie along one axis of the arguments. A rule takes PyTorch's record of that axis, its position in each
argument (None where the argument is the same for every call), and the arguments. It returns the outputs, and the
position of the axis in each of them.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from torch import Tensor

Rule: TypeAlias = Callable[..., tuple[Any, Any]]


def folded(operator: Any) -> Rule:
    """The rule of an operator on (N, C, ..) that treats every n by itself: the calls become parts of one batch."""

    def rule(info: Any, places: Any, *arguments: Any) -> tuple[Any, Any]:
        size, batch = info.batch_size, 0
        flat = []
        for argument, place in zip(arguments, places, strict=True):
            if isinstance(argument, Tensor):
                stacked = in_front(argument, place, size)
                batch = stacked.shape[1]
                flat.append(stacked.flatten(0, 1))
            else:
                flat.append(argument)
        found = operator(*flat)
        if isinstance(found, Tensor):
            return found.view(size, batch, *found.shape[1:]), 0
        return tuple(each.view(size, batch, *each.shape[1:]) for each in found), (0,) * len(found)

    return rule


def grouped(operator: Any) -> Rule:
    """The rule of a transposed convolution: calls that have their own weight or bias become groups of channels.

    Where weight and bias are the same for every call, the calls become parts of one batch.
    """

    def rule(info: Any, places: Any, x: Tensor, weight: Tensor, bias: Tensor | None, *others: Any) -> tuple[Any, Any]:
        if places[1] is None and places[2] is None:
            return folded(lambda x: operator(x, weight, bias, *others))(info, places[:1], x)
        size = info.batch_size
        stride, padding, output_padding, groups, dilation = others
        stacked = in_front(x, places[0], size).movedim(0, 1).flatten(1, 2)
        weights = in_front(weight, places[1], size).flatten(0, 1)
        biases = None if bias is None else in_front(bias, places[2], size).flatten()
        y = operator(stacked, weights, biases, stride, padding, output_padding, groups * size, dilation)
        return y.view(y.shape[0], size, y.shape[1] // size, *y.shape[2:]), 1

    return rule


def in_front(x: Tensor, place: int | None, size: int) -> Tensor:
    """The tensor with the axis of calls in front; repeated if it has none."""
    return x.unsqueeze(0).expand(size, *x.shape) if place is None else x.movedim(place, 0)
