"""A campaign: random models, images and tiles, of which every one has to give tiled what it gives whole.

python -m tests.runtime.tiles --graphs 1000 --networks 200 --seed 1
"""

import argparse
import time

import hypothesis.strategies as st
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.runtime.tiles.exactness import Tally, assert_exact
from tests.support.tiled_models import tiled_models
from tests.support.tiled_networks import segnets, u_nets


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
        print(  # noqa: T201
            f"{name}: {tally.drawn} models, {tally.tiles} tiles, {tally.values} values, {len(tally.refused)} refused, "
            f"{time.monotonic() - begin:.0f} s"
        )
        for why in sorted(set(tally.refused))[:20]:
            print("   ", why)  # noqa: T201


if __name__ == "__main__":
    main()
