"""What is known of a deployment target: which operators it takes, and which forms of an unpooling suit it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Target:
    """One target; every fact is from its sources, and none from a guess.

    Attributes:
        name: the word for it.
        title: what it is, with the version that the sources describe.
        operators: of ONNX's own domain, those that it takes.
        doubled: up to so many spatial axes, an unpooling that follows a pool is written with twice as many axes, see
            `placed`; it is the faster form where it was measured, docs/lowering.md.
        runtime: what it is called among the runtimes that may be installed here; "" if it is none of them.
        has_indices: whether its MaxPool has the second output.
        drops_windows: whether its MaxPool with ceil_mode drops a window that begins in the padding, as ONNX does.
        ranks: by operator, how many spatial axes it takes; any number for other operators.
        otherwise: what becomes of nodes that it does not take; "" where it refuses the model.
        sources: addresses of the pages that say so.
    """

    name: str
    title: str
    operators: frozenset[str]
    doubled: int = 0
    runtime: str = ""
    has_indices: bool = False
    drops_windows: bool = True
    ranks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    otherwise: str = ""
    sources: tuple[str, ...] = ()


def words(text: str) -> frozenset[str]:
    """The words of a text.

    >>> sorted(words("Relu Where"))
    ['Relu', 'Where']
    """
    return frozenset(text.split())
