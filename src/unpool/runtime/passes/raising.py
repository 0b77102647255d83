"""Replaces the nodes into which exporters decompose an unpooling by one MaxUnpool, and doubled pools by one MaxPool."""

from collections.abc import Callable
from typing import NamedTuple

from unpool.runtime.graph.dynamic_dims import DimFlow
from unpool.runtime.graph.graph import Graph, prune, unused_names
from unpool.runtime.graph.shapes import Types
from unpool.runtime.passes.edits import Edit, into_graph
from unpool.runtime.passes.merge_pools import pool_edits
from unpool.runtime.passes.raise_unpool import unpool_edits

MOST_ROUNDS = 64
"""Rounds at most; each looks at the whole graph, and an unpooling behind more than so many others stays decomposed."""


class Raised(NamedTuple):
    """The graph after all edits, the known types of its values, and the edits, round by round."""

    graph: Graph
    types: Types
    rounds: tuple[tuple[Edit, ...], ...]

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits of all rounds."""
        return tuple(edit for one in self.rounds for edit in one)


def raise_all(graph: Graph, types: Types, infer: Callable[[Graph], Types]) -> Raised:
    """Replace everything that can be replaced; results stay the same, bit for bit.

    Indices outside of the output, which ScatterND may refuse or count from its end, are refused then. A MaxUnpool says
    more of its output than the Reshape before, so the next one may be recognised only after it.

    Args:
        graph: constants lifted.
        types: what is known of the values.
        infer: gives the same for another graph.
    """
    rounds: list[tuple[Edit, ...]] = []
    finders = [unpool_edits, pool_edits]
    while finders and len(rounds) < MOST_ROUNDS:
        edits = tuple(finders[0](DimFlow(graph, types), unused_names(graph)))
        if edits:
            rounds.append(edits)
            graph = prune(into_graph(graph, edits))
            types = infer(graph)
        else:
            finders.pop(0)
    return Raised(graph, types, tuple(rounds))
