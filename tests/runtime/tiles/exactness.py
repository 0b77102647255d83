"""Whether a model gives tiled what it gives whole, for models and tiles that are drawn."""

from dataclasses import dataclass, field

import hypothesis.strategies as st
import numpy as np
from hypothesis import reject

import unpool
from unpool import tiles


@dataclass
class Tally:
    """What a campaign did.

    Attributes:
        drawn: models that run on their images.
        tiles: that they were cut into.
        values: of all outputs that were compared.
        refused: models that cannot be tiled, and why.
    """

    drawn: int = 0
    tiles: int = 0
    values: int = 0
    refused: list[str] = field(default_factory=list)


def assert_exact(drawn, data, tally):
    """All outputs of all tiles, put together, are those of the whole, bit for bit.

    Args:
        drawn: a model and what it gets.
        data: draws the size of a tile, and whether all tiles read parts of one shape.
        tally: is told what was done.
    """
    model, feed = drawn
    session = unpool.InferenceSession(model, index_space="output", exact=True)
    try:
        expected = session.run(None, feed)
    except Exception:  # whoever runs a node of which nothing is left
        reject()
    if not all(one.size for one in expected):
        reject()
    rank = feed["x"].ndim - 2
    cell = data.draw(st.lists(st.integers(1, 20), min_size=rank, max_size=rank))
    shapes = {name: array.shape for name, array in feed.items()}
    tally.drawn += 1
    try:
        tiling = tiles.Tiler(session).tiling(shapes, cell, is_even=data.draw(st.booleans()))
    except unpool.UnsupportedError as error:
        tally.refused.append(str(error))
        return
    made = tiles.run_tiling(session, tiling, feed)
    for value, whole in zip(session.get_outputs(), expected, strict=True):
        assert made[value.name].dtype == whole.dtype
        np.testing.assert_array_equal(made[value.name], whole)
        tally.values += whole.size
    tally.tiles += len(tiling)
