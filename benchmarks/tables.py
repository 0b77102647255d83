"""Standings as text: the tables of the README and the check against the goals."""

import math
import os
from collections.abc import Sequence
from pathlib import Path

from benchmarks.case import FRESH
from benchmarks.engines import BY_NAME, ENGINES
from benchmarks.pictures import drawn
from benchmarks.standings import Standing, Standings
from unpool.files import write
from unpool.runtime.table import table

BEGIN, END = "<!-- speed:begin -->", "<!-- speed:end -->"
TITLES = {
    "max_pool": "MaxPool",
    "max_unpool": "MaxUnpool",
    "conv_transpose": "ConvTranspose",
    "training": "Training, forward and backward, through `unpool.torch`",
    "network": "Whole networks",
}
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


def section(standings: Standings, pictures: Path, page: Path) -> str:
    """What stands between the README's markers: conditions, a table per operator, and links to the pictures.

    Args:
        standings: of one machine.
        pictures: folder that the pictures are in.
        page: file that links to them.
    """
    parts = [conditions(standings)]
    for suite, title in TITLES.items():
        found = standings.of(suite)
        if found:
            parts.append(f"**{title}**, milliseconds\n\n{markdown(found)}")
    folder = Path(os.path.relpath(pictures, page.parent))
    parts += [f"![{words}]({(folder / name).as_posix()})" for name, words in drawn(standings).items()]
    return "\n\n".join(parts)


def conditions(standings: Standings) -> str:
    """Under which conditions the numbers hold."""
    machine = standings.machine
    first, last = standings.dates
    engines = ", ".join(f"{BY_NAME[name].title} {version}" for name, version in standings.versions.items())
    return (
        f"{machine.cpu}, {_counted(machine.threads)}, {first if first == last else f'{first} to {last}'}: {engines}. "
        "Each engine runs in a process of its own, one at a time, on random inputs, with constant weights; its results "
        "are compared before they are timed. Times are medians of the best of several rounds. *× best* is the fastest "
        "peer's time over ours: below 1 is a loss. *goal* is what it should be, against one peer where one is named. "
        "*limit* is the time that this machine needs to move the data "
        f"({machine.read / 1e9:.0f} GB/s read, {machine.written / 1e9:.0f} GB/s written) or to multiply "
        f"({machine.flops / 1e9:.0f} GFLOP/s), over ours: above 100 % where data stays in a cache or multiplications "
        "are saved. Our outputs go into memory that was used before, unless they are called fresh."
    )


def markdown(found: Sequence[Standing]) -> str:
    """A Markdown table of one suite."""
    peers = [engine for engine in ENGINES[1:] if any(engine.name in one.peers for one in found)]
    titles = ["case", "unpool", *(engine.title for engine in peers), "× best", "goal", "limit"]
    lines = [_line(titles), _line(["---", *["---:"] * (len(titles) - 1)])]
    for one in found:
        theirs = [milliseconds(one.peers[peer.name].median) if peer.name in one.peers else "–" for peer in peers]
        share = "–" if one.limit_share is None else f"{one.limit_share:.0%}".replace("%", " %")
        lines.append(_line([label(one), milliseconds(one.ours.median), *theirs, times(one.ratio), _goal(one), share]))
    return "\n".join(lines)


def write_between(readme: Path, text: str) -> None:
    """Put the text between the markers of a file, whatever stood there.

    Raises:
        ValueError: the file does not have both markers, once each and in order.
    """
    content = readme.read_text(encoding="utf-8")
    before, begin, rest = content.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end) or BEGIN in rest or END in after:
        raise ValueError(f"{readme}: expected {BEGIN} and, behind it, {END}, once each. Put them where tables belong.")
    write(readme, f"{before}{BEGIN}\n{text}\n{END}{after}".encode())


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


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
