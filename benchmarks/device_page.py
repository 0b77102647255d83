"""The page of `python -m benchmarks device`: failures, losses, what is near its limit, then everything else."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.device_parts import FAILED, LEFT_OUT, MISSING, STUB
from benchmarks.engines import BY_NAME, UNPOOL
from benchmarks.rows import PartRow
from benchmarks.tables import in_markdown, times

NEAR = 0.85
"""The part of a limit that counts as near."""

HOST_GOAL = 40e-6
"""Seconds of a call on the host, part 4."""

TITLES = {
    1: "what is there",
    2: "contract and gradients on the GPU",
    3: "operators on the GPU",
    4: "host time of calls",
    5: "cores",
    6: "sessions on the GPU",
}


@dataclass(frozen=True)
class Comparison:
    """One case of unpool, and the fastest peer if there is one."""

    ours: PartRow
    best: PartRow | None

    @property
    def ratio(self) -> float | None:
        """Times faster than the peer; below 1 is a loss."""
        return None if self.best is None else self.best.median / self.ours.median

    @property
    def share(self) -> float | None:
        """The limit over our time; above 1 where data stays in a cache."""
        return self.ours.limit / self.ours.median if self.ours.limit else None


def page(rows: Sequence[PartRow]) -> str:
    """The page about the rows of one machine."""
    compared = comparisons(rows)
    lost = sorted((one for one in compared if one.ratio is not None and one.ratio < 1), key=lambda one: one.ratio or 0)
    others = [one for one in compared if one not in lost]
    near = [one for one in others if one.share is not None and one.share >= NEAR]
    measured = {row.part: row.date for row in rows}
    missing = [f"part {part}, {title}" for part, title in TITLES.items() if part not in measured]
    parts = [
        f"# Found on {rows[0].machine}",
        "Written by `python -m benchmarks device`. "
        + "; ".join(f"part {part}, {TITLES[part]}: {measured[part]}" for part in sorted(measured))
        + f". Not run: {'; '.join(missing) or 'none'}.",
        "## Failures\n\n" + _list(row for row in rows if row.state == FAILED),
        "## Slower than a peer\n\n" + _table(lost),
        f"## At {NEAR:.0%} of the limit or more\n\n".replace("%", " %")
        + _table(sorted(near, key=lambda one: -(one.share or 0))),
        "## Farther from the limit, the farthest first\n\n"
        + _table(sorted((one for one in others if one not in near), key=lambda one: one.share or 0)),
        "## Host time\n\n" + _host(rows),
        "## More threads\n\n" + _scaling(compared),
        "## Not measured\n\n" + _list(row for row in rows if row.state in (LEFT_OUT, MISSING)),
        "## What is there\n\n" + _list(row for row in rows if not (row.state or row.median)),
    ]
    return "\n\n".join(parts) + "\n"


def comparisons(rows: Sequence[PartRow]) -> list[Comparison]:
    """Our times and those of the peers; times on the host with a stub are no comparison."""
    by_case: dict[tuple[int, str, int], list[PartRow]] = {}
    for row in rows:
        if row.median and row.state != STUB:
            by_case.setdefault((row.part, row.case, row.threads), []).append(row)
    found = []
    for some in by_case.values():
        peers = [row for row in some if row.engine != UNPOOL]
        found += [
            Comparison(row, min(peers, key=lambda peer: peer.median, default=None))
            for row in some
            if row.engine == UNPOOL
        ]
    return found


def _table(found: Sequence[Comparison]) -> str:
    if not found:
        return "None."
    lines = []
    for one in found:
        ours, best, share = one.ours, one.best, one.share
        threads = str(ours.threads) if ours.threads else "–"
        peer = [_title(best.engine), _microseconds(best.median)] if best else ["–", "–"]
        lines.append([str(ours.part), f"{ours.case} {ours.note}".strip(), threads, _microseconds(ours.median), *peer,
                      times(one.ratio), "–" if share is None else f"{share * 100:.0f} %"])  # fmt: skip
    return in_markdown(["part", "case", "threads", "unpool, µs", "peer", "µs", "× peer", "limit"], 2, lines)


def _host(rows: Sequence[PartRow]) -> str:
    found = [row for row in rows if row.part == 4 and row.median]
    if not found:
        return "Not measured."
    lines = [
        [row.case, _title(row.engine), _microseconds(row.median), _microseconds(row.p95), row.note, row.state or "–",
         "" if row.engine != UNPOOL else "reached" if row.median <= HOST_GOAL else "missed"]
        for row in found
    ]  # fmt: skip
    return in_markdown(
        ["call", "engine", "µs", "p95", "launches", "kernels", f"goal: {HOST_GOAL * 1e6:.0f} µs"], 2, lines
    )


def _scaling(compared: Sequence[Comparison]) -> str:
    """Times faster on many threads than on one, unpool and its peer; the worst first."""
    by_case: dict[str, dict[int, Comparison]] = {}
    for one in compared:
        if one.ours.threads:
            by_case.setdefault(one.ours.case, {})[one.ours.threads] = one
    counts = sorted({count for some in by_case.values() for count in some} - {1})
    lines = []
    for case, some in by_case.items():
        if 1 not in some or len(some) < 2:
            continue
        most = max(some)
        first, last = some[1], some[most]
        gains = [times(first.ours.median / some[count].ours.median) if count in some else "–" for count in counts]
        peers = (first.best, last.best)
        peer = times(peers[0].median / peers[1].median) if peers[0] and peers[1] else "–"
        lines.append((first.ours.median / last.ours.median / most, [case, *gains, peer]))
    if not lines:
        return "Not measured."
    titles = ["case", *(f"unpool on {count}" for count in counts), f"peer on {counts[-1]}"]
    return in_markdown(titles, 1, [line for _, line in sorted(lines)])


def _list(rows: Iterable[PartRow]) -> str:
    lines = [
        f"- part {row.part}, {row.case}{f' on {row.threads} threads' if row.threads else ''}: {row.note}"
        for row in rows
    ]
    return "\n".join(lines) or "None."


def _title(engine: str) -> str:
    return BY_NAME[engine].title if engine in BY_NAME else engine


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}" if seconds < 1e-3 else f"{seconds * 1e6:.0f}"
