"""What a run over files has to do, as those see it who read, compute and write at the same time: parts and stages."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from unpool.errors import UnpoolError
from unpool.images import formats
from unpool.images.axes import Array, Slices, full_slices
from unpool.images.fingerprint import fingerprint_array
from unpool.images.sink import OutputSpec
from unpool.images.source import cast_source
from unpool.runtime.graph.type_names import numpy_type
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.streams.flow import AHEAD
from unpool.runtime.streams.journal import Settings

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

Stage: TypeAlias = Callable[[Any], Any]
Made: TypeAlias = tuple[int, Mapping[str, Array]]
"""A part of the run, and what it gives of each output."""

IN_HANDS = 2 + AHEAD
"""Things that are in memory at a time between two stages: in the hands of both, and those that wait."""

BESIDES = 96 << 20
"""Bytes for what the first run loads: machine code, compressors, threads and their buffers."""


class Work(Protocol):
    """What is to be done, in parts that are written one by one; `len` counts them."""

    @property
    def settings(self) -> Settings:
        """All that the results depend on, as it is written into a journal."""

    @property
    def written(self) -> Mapping[str, OutputSpec]:
        """By output, what goes into its file."""

    def __len__(self) -> int:
        """Number of parts."""

    def windows(self, part: int) -> Mapping[str, Slices]:
        """Where a part goes in the files of the outputs to which it gives something."""

    def items(self, left: Collection[int]) -> Iterable[Any]:
        """What goes through the stages, if these parts are left to be done."""

    def stages(self, options: onnxruntime.RunOptions) -> Sequence[Stage]:
        """Each makes something of what the one before has made; the last one gives `Made`, or None where none is ready.

        Args:
            options: of the runs, which end them.
        """


def sources_of(session: "InferenceSession", feed: Mapping[str, Any], layout: str) -> dict[str, Any]:
    """Every input as something with a shape that gives windows.

    Raises:
        UnpoolError: an input is missing or of another type.
        FileError: a file cannot be read.
    """
    values = {value.name: value for value in session.get_inputs()}
    if set(values) != set(feed):
        raise UnpoolError(
            f"feed: expected the inputs {', '.join(values)}; got {', '.join(feed) or 'none'}. "
            "Give a source for each of them, and no other."
        )
    found: dict[str, Any] = {}
    for name, given in feed.items():
        source = given
        if isinstance(given, (str, Path)):
            source = formats.open(given, rank=len(values[name].shape or ()), layout=layout)
        elif not hasattr(given, "shape"):
            source = np.asarray(given)
        found[name] = cast_source(source, numpy_type(values[name].type), name)
    return found


def read_uncut(sources: Mapping[str, Any], cut: Collection[str]) -> dict[str, Any]:
    """The sources; those that are not cut are read."""
    return {name: source if name in cut else _all_of(source) for name, source in sources.items()}


def identities(sources: Mapping[str, Any]) -> dict[str, str]:
    """Equal for sources of the same content, as far as that can be told."""
    return {name: source.fingerprint() if hasattr(source, "fingerprint") else fingerprint_array(source)
            for name, source in sources.items()}  # fmt: skip


def spatial_header_of(sources: Mapping[str, Any]) -> Any:
    """The header of the volume that the model sees, if one of the sources has one."""
    return next(
        (found for one in sources.values() if (found := getattr(one, "spatial_header", None)) is not None), None
    )


def _all_of(source: Any) -> Array:
    return source if isinstance(source, np.ndarray) else np.asarray(source[full_slices(tuple(source.shape))])
