"""Standings as text: tables for pages, and the check against the goals."""

import math
from collections.abc import Sequence

from benchmarks.case import FRESH
from benchmarks.engines import BY_NAME, ENGINES
from benchmarks.standings import Standing, Standings
from unpool.display import table

BEST = "*× best* is how many times faster unpool is than the fastest of the others: below 1, it is slower"
KINDS = {"float32": "", "float16": "float16", "bfloat16": "bfloat16", "uint8": "uint8"}


def milliseconds(seconds: float) -> str:
    """Three digits, in milliseconds.

    >>> milliseconds(0.00123456), milliseconds(1.5), milliseconds(4.25e-6)
    ('1.23', '1500', '0.00425')
    """
    value = seconds * 1e3
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"


def times(ratio: float | None) -> str:
    """A ratio with three digits at most.

    >>> times(16.04), times(0.943), times(None)
    ('16×', '0.94×', '–')
    """
    if ratio is None:
        return "–"
    return f"{ratio:.0f}×" if ratio >= 9.95 else f"{ratio:.1f}×" if ratio >= 1.995 else f"{ratio:.2f}×"


def label(one: Standing) -> str:
    """The case in words: name, shape, type, and memory that was never written."""
    words = [f"{one.case.name} {one.case.title}", KINDS[one.case.dtype], "fresh outputs" * (one.outputs == FRESH)]
    return ", ".join(filter(None, words))


def source(standings: Standings) -> str:
    """Where and when the numbers were measured, and which version of each engine."""
    machine = standings.machine
    first, last = standings.dates
    engines = ", ".join(f"{BY_NAME[name].title} {version}" for name, version in standings.versions.items())
    return f"{machine.cpu}, {_counted(machine.threads)}, {first if first == last else f'{first} to {last}'}: {engines}"


def conditions(standings: Standings) -> str:
    """The conditions of the measurement and the meaning of each column."""
    machine = standings.machine
    return f"""\
- Each engine runs in a process of its own, one at a time, on random inputs, with constant weights. Its results are
  compared with those of the others before it is timed. Of several rounds the best counts, and of its runs the
  median.
- {BEST}.
- *goal* is what *× best* should be. Where a goal names a peer, it compares unpool with that peer alone.
- *limit* is the shortest time possible on this machine, divided by unpool's: the time to read the inputs at
  {machine.read / 1e9:.0f} GB/s and write the outputs at {machine.written / 1e9:.0f} GB/s, or to multiply at \
{machine.flops / 1e9:.0f} GFLOP/s where that takes longer.
  It is above 100 % where data stays in a cache, and where an algorithm saves multiplications.
- unpool reuses the memory of earlier outputs, as it does by default. In rows that say *fresh outputs* it writes into
  new memory."""


def markdown(found: Sequence[Standing], kinds: Sequence[str] = ()) -> str:
    """A Markdown table.

    Args:
        found: a row each.
        kinds: what each row is about, where rows of several suites stand in one table; goals and limits are left out.
    """
    peers = [engine for engine in ENGINES[1:] if any(engine.name in one.peers for one in found)]
    titles = ["case", "unpool", *(engine.title for engine in peers), "× best"]
    lines = [_cells(one, [engine.name for engine in peers]) for one in found]
    if kinds:
        return in_markdown(["", *titles], 2, [[kind, *cells] for kind, cells in zip(kinds, lines, strict=True)])
    shares = ["–" if one.limit_share is None else f"{one.limit_share:.0%}".replace("%", " %") for one in found]
    rows = [[*cells, _goal(one), share] for one, cells, share in zip(found, lines, shares, strict=True)]
    return in_markdown([*titles, "goal", "limit"], 1, rows)


def goal_table(standings: Standings) -> str:
    """Every goal with what was reached."""
    rows = []
    for one in standings.every:
        if one.goal is None:
            continue
        share = one.goal.limit_share
        further = times(one.goal.stretch) if share is None else f"{share:.0%} of the limit"
        reached = times(one.reached) if share is None else f"{times(one.reached)}, {one.limit_share or 0:.0%}"
        best = "–" if one.rival is None else BY_NAME[one.rival.engine].title
        state = "missed" if one.has_missed else "stretch" if one.has_stretched else "reached"
        rows.append([label(one), best, times(one.goal.must), further, reached, state if one.reached else "no peer"])
    titles = ("case", "peer", "must", "stretch", "reached", "state")
    states = [row[-1] for row in rows]
    held = len(states) - states.count("no peer")
    return f"{table(titles, rows)}\n{states.count('missed')} of {held} goals missed" if rows else "no goals measured"


def _goal(one: Standing) -> str:
    if one.goal is None:
        return "–"
    return f"{times(one.goal.must)} {BY_NAME[one.goal.against].title}" if one.goal.against else times(one.goal.must)


def _counted(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


def _cells(one: Standing, peers: Sequence[str]) -> list[str]:
    theirs = [milliseconds(one.peers[peer].median) if peer in one.peers else "–" for peer in peers]
    return [label(one), milliseconds(one.ours.median), *theirs, times(one.ratio)]


def in_markdown(titles: Sequence[str], words: int, rows: Sequence[Sequence[str]]) -> str:
    """A table whose first columns, so many, hold words, the others numbers."""
    lines = [titles, ["---"] * words + ["---:"] * (len(titles) - words), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
