"""What many runs of whole networks took, as tables: for the terminal, and for docs/speed-networks.md."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import geometric_mean
from typing import TypeVar

from benchmarks.engines import EVERY, TUNED, UNPOOL
from benchmarks.rows import SteadyRow
from benchmarks.shapes import PUBLISHED
from benchmarks.steady import ASKED, PEERS, Runs, name_of
from benchmarks.tables import in_markdown, milliseconds, times
from unpool.display import table

OURS = (UNPOOL, TUNED.name)

VARIATION = (
    "Run-to-run variation: 95th percentile divided by the median. In *multiplications alone* the threads multiply "
    "numbers in registers for about as long as unpool runs; variation in this column is noise of the machine. The last "
    "column is the best peer's 95th percentile divided by unpool's: above 1, unpool's is lower."
)

ByEngine = Mapping[str, SteadyRow]
_Gain = TypeVar("_Gain")


def markdown(rows: Sequence[SteadyRow]) -> str:
    """Two tables of the stored runs: their times, and the variation from run to run."""
    return f"{_durations(rows)}\n\n{VARIATION}\n\n{_variation(rows)}"


def _durations(rows: Sequence[SteadyRow]) -> str:
    """Median and 95th percentile of each engine, and the best peer's median over ours."""
    engines, lines = (*OURS, *PEERS), []
    for prefix, cases in _by_load(rows):
        gains = {case: [_best(some, "median") / some[name].median for name in OURS] for case, some in cases.items()}
        for case, some in cases.items():
            cells = [f"{milliseconds(some[name].median)} / {milliseconds(some[name].p95)}" if name in some else "–"
                     for name in engines]  # fmt: skip
            lines.append([f"{prefix}{case}", *cells, *map(times, gains[case])])
        for title, each in _groups(gains).items():
            means = [times(geometric_mean(some)) for some in zip(*each, strict=True)]
            lines.append([f"{prefix}geometric mean{title}", *[""] * len(engines), *means])
    titles = ["network", *(EVERY[name].title for name in engines), *(f"{EVERY[name].title}, × best" for name in OURS)]
    return in_markdown(titles, 1, lines)


def _variation(rows: Sequence[SteadyRow]) -> str:
    """The 95th percentile over the median, of each engine, and the best peer's 95th percentile over ours."""
    lines = []
    for prefix, cases in _by_load(rows):
        lines += [[f"{prefix}{case}", *_variation_cells([some])] for case, some in cases.items()]
        lines += [[f"{prefix}geometric mean{title}", *_variation_cells(each)] for title, each in _groups(cases).items()]
    titles = ["p95 ÷ median", *(EVERY[name].title for name in ASKED), f"p95 of {UNPOOL}, × best"]
    return in_markdown(titles, 1, lines)


def _variation_cells(cases: Sequence[ByEngine]) -> list[str]:
    """Of each engine that all of these networks have, in the mean."""
    cells = []
    for name in ASKED:
        known = all(name in some for some in cases)
        cells.append(f"{geometric_mean(some[name].p95 / some[name].median for some in cases):.2f}" if known else "–")
    return [*cells, times(geometric_mean(_best(some, "p95") / some[UNPOOL].p95 for some in cases))]


def _by_load(rows: Sequence[SteadyRow]) -> Iterator[tuple[str, dict[str, ByEngine]]]:
    """How lines of a quiet or a busy machine begin, and its networks."""
    for load in dict.fromkeys(row.load for row in rows):
        cases: dict[str, dict[str, SteadyRow]] = {}
        for row in rows:
            if row.load == load:
                cases.setdefault(row.case, {})[row.engine] = row
        yield "busy: " * (load > 0), dict(cases)


def _best(some: ByEngine, figure: str) -> float:
    """Of the peers."""
    return float(min(getattr(row, figure) for name, row in some.items() if name in PEERS))


def _groups(gains: Mapping[str, _Gain]) -> dict[str, list[_Gain]]:
    """Of all networks, by "", and before that, where there are others too, of those of PUBLISHED."""
    published = [gain for case, gain in gains.items() if case in {name_of(each) for each in PUBLISHED}]
    every = list(gains.values())
    return {" at published widths": published, "": every} if 0 < len(published) < len(every) else {"": every}


def report(found: Sequence[Runs]) -> str:
    """A table, network by network, and how much faster unpool is than the fastest peer, untuned and tuned."""
    rows: list[tuple[str, ...]] = []
    gains: dict[str, dict[str, float]] = {}
    peers = [EVERY[name].title for name in PEERS]
    for case in {name_of(one.case): one.case for one in found}.values():
        some = [one for one in found if one.case is case]
        best = min(one.median for one in some if one.who in peers)
        for one in some:
            if one.who in (UNPOOL, TUNED.title):
                gains.setdefault(one.who, {})[name_of(case)] = best / one.median
        rows += [
            (
                name_of(case),
                one.who,
                milliseconds(min(one.seconds)),
                milliseconds(one.median),
                milliseconds(one.p95),
                f"{one.p95 / one.median:.2f}",
                f"{best / one.median:.2f}" if one.who.startswith(UNPOOL) else "",
            )
            for one in some
        ]
    heads = ("network", "engine", "fastest, ms", "median, ms", "p95, ms", "p95 / median", "times the best peer")
    means = [
        f"{who} against the best peer, geometric mean{title}: {geometric_mean(each):.2f}"
        for who, some in gains.items()
        for title, each in _groups(some).items()
    ]
    return "\n".join([table(heads, rows), *means])
