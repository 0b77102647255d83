"""The graph that a session runs, read again: a session keeps its steps, and not the graph that they were made of."""

from typing import NamedTuple

from unpool.runtime.graph.boundary import reading
from unpool.runtime.graph.node_contract import Meaning
from unpool.runtime.graph.record import Graph
from unpool.runtime.graph.shapes import Types
from unpool.runtime.session.described import Described
from unpool.runtime.session.loaded import prepare
from unpool.runtime.session.opening import brought


class Prepared(NamedTuple):
    """A graph after all passes, what is known of its values, and how operators of ours are read."""

    graph: Graph
    types: Types
    meaning: Meaning


def prepared(session: Described) -> Prepared:
    """The graph of a session.

    Raises:
        UnpoolError: the file of the model is gone, or another one now.
    """
    told = session._told
    with reading(told.source):
        model, _, settings = brought(told)
        return Prepared(*prepare(model, settings), settings.meaning)
