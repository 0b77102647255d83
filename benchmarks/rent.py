"""What each mechanism of `mechanisms.py` earns: the time of every case without it, over the time with it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from benchmarks.measure import say
from benchmarks.mechanisms import MECHANISMS
from benchmarks.pair import Pair, Side, pairs
from benchmarks.shapes import matching
from benchmarks.tables import in_markdown

WORTH = 0.05
"""What a mechanism has to earn on some case of a real network."""

SHOWN = 3
"""Cases that gain most, and so many that gain least, in each line of the table."""


@dataclass(frozen=True)
class Earned:
    """What was measured of one mechanism."""

    mechanism: str
    pairs: tuple[Pair, ...]

    @property
    def gains(self) -> list[tuple[float, str]]:
        """Time without over time with, and the case; the largest first."""
        return sorted(((1 / _nearest_to_one(pair), pair.case.path) for pair in self.pairs), reverse=True)


def earned(mechanisms: Sequence[str], threads: int, rounds: int) -> Iterator[Earned]:
    """Time the cases of each mechanism with it and without.

    Args:
        mechanisms: names of MECHANISMS.
        threads: for both sides.
        rounds: as for `pairs`, with which they are timed.
    """
    for name in mechanisms:
        say(f"without {name}: {MECHANISMS[name].instead}")
        cases = matching(MECHANISMS[name].cases)
        yield Earned(name, tuple(pairs(Side(without=name), cases, threads, rounds)))


def report(found: Iterable[Earned]) -> str:
    """A table for people: what each mechanism gains in all, at best and at worst."""
    heads = ("mechanism", "without it", "cases", "5 % or more", "mean", "most", "least")
    rows = [
        (
            one.mechanism,
            MECHANISMS[one.mechanism].instead,
            str(len(one.gains)),
            str(sum(gain >= 1 + WORTH for gain, _ in one.gains)),
            f"{geometric_mean(gain for gain, _ in one.gains):.2f}",
            _listed(one.gains[:SHOWN]),
            _listed(one.gains[-SHOWN:]),
        )
        for one in found
    ]
    return in_markdown(heads, 2, rows)


def _nearest_to_one(pair: Pair) -> float:
    """Of both ratios, with over without, the one that claims less."""
    return min(pair.ratio, pair.fastest, key=lambda ratio: abs(ratio - 1))


def _listed(gains: Sequence[tuple[float, str]]) -> str:
    return "; ".join(f"{gain:.2f} {case}" for gain, case in gains)
