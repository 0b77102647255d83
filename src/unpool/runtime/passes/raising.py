"""Decomposed unpoolings and pools become single nodes again: ScatterND to MaxUnpool, two MaxPool to one."""

from collections.abc import Callable
from typing import NamedTuple

from unpool.runtime.graph import Graph
from unpool.runtime.passes.constants import prune
from unpool.runtime.passes.edits import Edit, Names, into_graph
from unpool.runtime.passes.merge_pools import pool_edits
from unpool.runtime.passes.raise_unpool import unpool_edits
from unpool.runtime.passes.size_flow import SizeFlow
from unpool.runtime.shapes import Types

MOST_ROUNDS = 64
"""Each round looks at the whole graph; what is decomposed deeper stays as it is."""


class Raised(NamedTuple):
    """A graph with single nodes, what is known of its values, and the rounds of edits that led there."""

    graph: Graph
    types: Types
    rounds: tuple[tuple[Edit, ...], ...]

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits of all rounds."""
        return tuple(edit for one in self.rounds for edit in one)


def raise_all(graph: Graph, types: Types, infer: Callable[[Graph], Types]) -> Raised:
    """Raise what can be raised; results stay the same, bit for bit.

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
        edits = tuple(finders[0](SizeFlow(graph, types), Names(graph)))
        if edits:
            rounds.append(edits)
            graph = prune(into_graph(graph, edits))
            types = infer(graph)
        else:
            finders.pop(0)
    return Raised(graph, types, tuple(rounds))
