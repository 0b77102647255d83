"""Random graphs and networks in tiles, of which every one has to give what it gives whole, bit for bit.

python -m tools.campaigns.tiled_graphs --graphs 1000 --networks 200 --seed 1
"""

import argparse
import time
from dataclasses import dataclass, field

import hypothesis.strategies as st
import numpy as np
from hypothesis import HealthCheck, Phase, given, reject, seed, settings

import unpool
from tests.support.tiled_models import tiled_models
from tests.support.tiled_networks import segnets, u_nets
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


def campaign(models, count, number):
    """What came of so many models; an error shows the smallest model that differs."""
    tally = Tally()

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
        print_blob=True,
    )
    @given(models, st.data())
    def each(drawn, data):
        assert_exact(drawn, data, tally)

    each()
    return tally


def main():
    """Run it, and print a line for each kind of model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--networks", type=int, default=200, help="of each of the two kinds")
    parser.add_argument("--seed", type=int, default=1)
    given_words = parser.parse_args()
    counts = {"graphs": given_words.graphs, "segnets": given_words.networks, "u_nets": given_words.networks}
    for name, models in (("graphs", tiled_models()), ("segnets", segnets()), ("u_nets", u_nets())):
        if not counts[name]:
            continue
        begin = time.monotonic()
        tally = campaign(models, counts[name], given_words.seed)
        print(
            f"{name}: {tally.drawn} models, {tally.tiles} tiles, {tally.values} values, {len(tally.refused)} refused, "
            f"{time.monotonic() - begin:.0f} s"
        )
        for why in sorted(set(tally.refused))[:20]:
            print("   ", why)


if __name__ == "__main__":
    main()
