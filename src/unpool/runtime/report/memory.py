"""What the values between steps take: which are alive after which step, and what a run takes at its peak."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unpool.errors import UnpoolError
from unpool.runtime.tiles.tiler import Tiler

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

INPUT = -1
"""The step that makes the inputs of the model."""


@dataclass(frozen=True)
class Value:
    """A value that one step hands to another, or to the caller.

    Attributes:
        name: of the value.
        type: of its elements, or what it is.
        shape: of an array; None for anything else.
        bytes: of its elements.
        made: position of the step that makes it; `INPUT` for an input.
        last: position of the last step that reads it; of the last step of all for an output.
    """

    name: str
    type: str
    shape: tuple[int, ...] | None
    bytes: int
    made: int
    last: int


@dataclass(frozen=True)
class Memory:
    """What a run takes.

    Attributes:
        values: in the order in which they are made.
        alive: by step, bytes of the values that are alive while it runs, those that it makes included.
        forecast: bytes of a whole run at its peak, with what partitions hold, beside inputs and session; None where
            nothing is forecast.
        refusal: why nothing is.
    """

    values: tuple[Value, ...]
    alive: tuple[int, ...]
    forecast: int | None = None
    refusal: str = ""


class Ledger:
    """Notes values while a model runs, without holding them."""

    def __init__(self, feed: Mapping[str, Any]) -> None:
        self._found = {name: (INPUT, *_described(value)) for name, value in feed.items()}
        self._last: dict[str, int] = {}
        self._steps = 0

    def note(self, read: Mapping[str, Any], made: Mapping[str, Any]) -> None:
        """Note what the next step reads and makes."""
        self._last |= dict.fromkeys(read, self._steps)
        self._found |= {name: (self._steps, *_described(value)) for name, value in made.items()}
        self._steps += 1

    def memory(self, outputs: Sequence[str], forecast: int | None, refusal: str) -> Memory:
        """What was noted; `outputs` are those of the model."""
        end = max(self._steps - 1, 0)
        last = self._last | dict.fromkeys(outputs, end)
        values = tuple(
            Value(name, kind, shape, size, made, last.get(name, made))
            for name, (made, kind, shape, size) in self._found.items()
        )
        alive = tuple(sum(one.bytes for one in values if one.made <= step <= one.last) for step in range(self._steps))
        return Memory(values, alive, forecast, refusal)


def forecast(session: "InferenceSession", feed: Mapping[str, Any]) -> tuple[int | None, str]:
    """Bytes that a run takes at its peak, or the reason why they cannot be foretold."""
    try:
        return Tiler(session).run_bytes({name: tuple(np.shape(value)) for name, value in feed.items()}), ""
    except UnpoolError as error:
        return None, str(error)


def _described(value: Any) -> tuple[str, tuple[int, ...] | None, int]:
    """Type, shape and bytes of a value."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.nbytes
    if isinstance(value, list | tuple):
        return f"sequence of {len(value)}", None, sum(_described(one)[2] for one in value)
    return type(value).__name__, None, 0
