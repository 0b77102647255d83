"""Tiled is untiled: random graphs, networks, several inputs, indices; and the nodes that forbid it are named."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import unpool
from tests.support.tiled_models import tiled_models
from unpool.runtime.tiles.run import run_tiling
from unpool.runtime.tiles.tiler import Tiler


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(tiled_models(), st.data())
def test_random_graphs_give_the_same_bits(drawn, data):
    """Whatever the layers, their pads and the sizes: all outputs of all tiles, put together, are those of the image."""
    model, image = drawn
    session = unpool.InferenceSession(model, index_space="output", exact=True)
    tile = data.draw(st.lists(st.integers(1, 20), min_size=image.ndim - 2, max_size=image.ndim - 2))
    tiling = Tiler(session).tiling({"x": image.shape}, tile)
    expected = session.run(None, {"x": image})
    made = run_tiling(session, tiling, {"x": image})
    for value, whole in zip(session.get_outputs(), expected, strict=True):
        np.testing.assert_array_equal(made[value.name], whole)
