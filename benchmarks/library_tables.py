"""Networks in onnxruntime's sessions with unpool's library, as tables for docs/speed-networks.md."""

from collections.abc import Callable, Mapping, Sequence
from statistics import geometric_mean

from benchmarks.library_process import ALONE, BARE, COMPILED, LIBRARY, SESSION
from benchmarks.rows import LibraryRow
from benchmarks.tables import in_markdown, milliseconds, times

TITLES = {
    ALONE: "onnxruntime",
    LIBRARY: "with the library",
    BARE: "without Python",
    COMPILED: "compiled",
    SESSION: "unpool's session",
}

TEXT = (
    "The same file in onnxruntime's own session, alone, after `unpool.onnxruntime.register`, and with the library as "
    "programs in C register it, planned without Python; the model that `unpool.onnxruntime.compile` made of it, which "
    "needs no Python either; and `unpool.InferenceSession`. Each engine runs in a process of its own, in turn. "
    "Milliseconds, median and 95th percentile, and how many times faster than onnxruntime alone."
)

LOADING = (
    "Loading is registering the library, a session, and the first run: first in a new process, then in one that has "
    "loaded the model before. The import is that of unpool, which comes before; that of onnxruntime and NumPy is not "
    "counted. Where a model is not compiled, the planner and its kernels are imported while the first model loads. "
    "Memory is the peak of resident memory of the process."
)
LOADS: Mapping[str, Callable[[LibraryRow], float]] = {
    "first load, ms": lambda row: row.load * 1e3,
    "later loads, ms": lambda row: row.reload * 1e3,
    "import, ms": lambda row: row.imports * 1e3,
    "memory, MB": lambda row: row.memory / 1e6,
}
"""The quantities that have a table each."""

ByEngine = Mapping[str, LibraryRow]


def markdown(rows: Sequence[LibraryRow]) -> str:
    """Text and tables of the rows of one machine."""
    networks: dict[str, dict[str, LibraryRow]] = {}
    refused: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        networks.setdefault(row.network, {})[row.engine] = row
        if row.reason:
            refused.setdefault((row.network, row.reason), []).append(TITLES[row.engine])
    first, date = rows[0], max(row.date for row in rows)
    source = f"{first.cpu}, {first.threads} threads, {date}, onnxruntime {first.version}."
    parts = [f"{source} {TEXT}", _durations(networks), LOADING, _loads(networks)]
    reasons = [f"- {network}, {', '.join(engines)}: {reason}" for (network, reason), engines in refused.items()]
    return "\n\n".join([*parts, *(["Not run:\n\n" + "\n".join(reasons)] if reasons else [])])


def short_table(rows: Sequence[LibraryRow], names: Sequence[str]) -> str:
    """A table of some networks in onnxruntime and in unpool's session, below the machine and the date.

    Raises:
        KeyError: a network was not measured in both.
    """
    found = {(row.network, row.engine): row for row in rows}
    pairs = [(found[name, ALONE], found[name, SESSION]) for name in names]
    lines = [
        [
            f"{alone.network} {alone.input}",
            *map(milliseconds, (ours.median, alone.median)),
            times(alone.median / ours.median),
        ]
        for alone, ours in pairs
    ]
    table = in_markdown(["whole network", "`unpool.InferenceSession`", "onnxruntime", "×"], 1, lines)
    first, date = rows[0], max(row.date for row in rows)
    return f"{first.cpu}, {first.threads} threads, {date}, onnxruntime {first.version}:\n\n{table}"


def latest(rows: Sequence[LibraryRow]) -> list[LibraryRow]:
    """The rows of the machine and number of threads that were measured last."""
    last = max(rows, key=lambda row: row.date, default=None)
    return [row for row in rows if last and (row.cpu, row.threads) == (last.cpu, last.threads)]


def _durations(networks: Mapping[str, ByEngine]) -> str:
    others = [engine for engine in TITLES if engine != ALONE]
    titles = ["network", "input", *TITLES.values(), *(f"{TITLES[engine]}, ×" for engine in others)]
    gains = {name: [_gain(engines, engine) for engine in others] for name, engines in networks.items()}
    lines = [
        [name, engines[ALONE].input, *(_cell(engines.get(engine)) for engine in TITLES), *map(times, gains[name])]
        for name, engines in networks.items()
    ]
    columns = [[gain for gain in column if gain] for column in zip(*gains.values(), strict=True)]
    means = [times(geometric_mean(column) if column else None) for column in columns]
    return in_markdown(titles, 2, [*lines, ["geometric mean", "", *[""] * len(TITLES), *means]])


def _loads(networks: Mapping[str, ByEngine]) -> str:
    tables = []
    for title, quantity in LOADS.items():
        lines = [
            [name, *(_load_cell(engines.get(engine), quantity) for engine in TITLES)]
            for name, engines in networks.items()
        ]
        tables.append(in_markdown([title, *TITLES.values()], 1, lines))
    return "\n\n".join(tables)


def _gain(engines: ByEngine, engine: str) -> float | None:
    alone, ours = engines.get(ALONE), engines.get(engine)
    return alone.median / ours.median if alone and ours and alone.runs and ours.runs else None


def _cell(row: LibraryRow | None) -> str:
    return f"{milliseconds(row.median)} / {milliseconds(row.p95)}" if row and row.runs else "–"


def _load_cell(row: LibraryRow | None, quantity: Callable[[LibraryRow], float]) -> str:
    return f"{quantity(row):.0f}" if row is not None and row.runs else "–"
