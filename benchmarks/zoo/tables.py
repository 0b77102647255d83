"""The networks of the zoo as tables: those that lose first."""

from collections.abc import Mapping, Sequence
from statistics import geometric_mean
from typing import TypeAlias

from benchmarks.engines import EVERY, TUNED, UNPOOL
from benchmarks.rows import ZooRow
from benchmarks.tables import in_markdown, milliseconds, times
from benchmarks.zoo.measure import ENGINES, EXPORT
from benchmarks.zoo.model_file import GROUPS

OURS, PEERS = ENGINES[:2], ENGINES[2:]
ONNXRUNTIME = "onnxruntime"

TEXT = (
    "Networks of MONAI, segmentation_models_pytorch, transformers, diffusers, timm and torchvision, with whose names "
    "theirs begin, and some of our own, with random weights, as PyTorch exports them. Names with `_mu` mean that they "
    "were exported by `unpool.torch.export`, which writes MaxUnpool; `_dyn` means dynamic sizes. "
    "`MaxPool+Indices` also gives Indices. Results are PyTorch's within a thousandth of the largest value; where "
    "Indices or labels depend on rounding, one number in twenty may differ more. "
    "Milliseconds, median and 95th percentile; *tuned* is a session with `tune=True`; *best* is the faster one of "
    "onnxruntime and OpenVINO. The networks that are slowest against it come first."
)

RESOURCES = (
    "Seconds to load the model and of its first run, and the largest number of resident megabytes above what imports "
    "take: medians of the rounds. unpool compiles kernels in the first one."
)

ByEngine: TypeAlias = Mapping[str, ZooRow]


def latest(rows: Sequence[ZooRow]) -> list[ZooRow]:
    """The rows of the machine and number of threads that were measured last."""
    if not rows:
        return []
    last = max(rows, key=lambda row: row.date)
    return [row for row in rows if (row.cpu, row.threads) == (last.cpu, last.threads)]


def markdown(rows: Sequence[ZooRow]) -> str:
    """Text and tables of the rows of one machine."""
    networks = by_network(rows)
    parts = [f"{_source(rows)} {TEXT}", _durations(networks), _means(networks)]
    missing = [f"- {row.network}: {row.reason}" for row in rows if row.engine == EXPORT]
    refused = [
        f"- {row.network}, {EVERY[row.engine].title}: {row.reason}"
        for row in rows
        if row.engine != EXPORT and row.reason and not _is_expected(row)
    ]
    parts += [RESOURCES, _resources(networks)]
    parts += ["Not exported:\n\n" + "\n".join(missing)] if missing else []
    parts += ["Not run:\n\n" + "\n".join(refused)] if refused else []
    return "\n\n".join(parts)


def by_network(rows: Sequence[ZooRow]) -> dict[str, ByEngine]:
    """The engines that ran each network, those that lose most against the best peer first."""
    found: dict[str, dict[str, ZooRow]] = {}
    for row in rows:
        if row.runs:
            found.setdefault(row.network, {})[row.engine] = row
    compared = {name: engines for name, engines in found.items() if UNPOOL in engines}
    return dict(sorted(compared.items(), key=lambda item: gain(item[1], UNPOOL) or 0))


def gain(engines: ByEngine, ours: str, peers: Sequence[str] = PEERS) -> float | None:
    """The median of the fastest of these peers over that of ours; None where one is missing."""
    medians = [engines[peer].median for peer in peers if peer in engines]
    return min(medians) / engines[ours].median if medians and ours in engines else None


def _durations(networks: Mapping[str, ByEngine]) -> str:
    titles = [
        "network", "input", "operators", *(EVERY[name].title for name in ENGINES), "unpool, × onnxruntime",
        *(f"{EVERY[name].title}, × best" for name in OURS),
    ]  # fmt: skip
    lines = []
    for name, engines in networks.items():
        row = engines[UNPOOL]
        cells = [_cell(engines.get(engine)) for engine in ENGINES]
        ratios = [gain(engines, UNPOOL, [ONNXRUNTIME]), *(gain(engines, ours) for ours in OURS)]
        lines.append([name, row.input, row.operators or "–", *cells, *map(times, ratios)])
    return in_markdown(titles, 3, lines)


def _means(networks: Mapping[str, ByEngine]) -> str:
    """Geometric means of each group, and of all networks."""
    titles = ["geometric mean", "networks", "unpool, × onnxruntime", *(f"{EVERY[name].title}, × best" for name in OURS)]
    groups = {group: [each for each in networks.values() if each[UNPOOL].group == group] for group in GROUPS}
    lines = [_mean_cells(group, members) for group, members in groups.items() if members]
    return in_markdown(titles, 1, [*lines, _mean_cells("all", list(networks.values()))])


def _mean_cells(title: str, members: Sequence[ByEngine]) -> list[str]:
    columns = [[gain(each, UNPOOL, [ONNXRUNTIME]) for each in members]]
    columns += [[gain(each, ours) for each in members] for ours in OURS]
    means = []
    for column in columns:
        ratios = [ratio for ratio in column if ratio is not None]
        means.append(times(geometric_mean(ratios) if ratios else None))
    return [title, str(len(members)), *means]


def _resources(networks: Mapping[str, ByEngine]) -> str:
    """Load, first run and peak memory of each engine."""
    titles = ["network", *(f"{EVERY[name].title}: load / first run / MB" for name in ENGINES)]
    lines = [[name, *(_resource_cell(engines.get(engine)) for engine in ENGINES)] for name, engines in networks.items()]
    return in_markdown(titles, 1, lines)


def _cell(row: ZooRow | None) -> str:
    return "–" if row is None else f"{milliseconds(row.median)} / {milliseconds(row.p95)}"


def _resource_cell(row: ZooRow | None) -> str:
    return "–" if row is None else f"{row.load:.2f} / {row.first:.3f} / {row.memory / 1e6:.0f}"


def _source(rows: Sequence[ZooRow]) -> str:
    measured = [row for row in rows if row.engine in EVERY]
    versions = {EVERY[row.engine].title: row.version for row in measured if row.engine != TUNED.name and row.version}
    dates = sorted({row.date for row in rows})
    date = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    engines = ", ".join(f"{title} {version}" for title, version in versions.items())
    return f"{rows[0].cpu}, {rows[0].threads} threads, {date}: {engines}."


def _is_expected(row: ZooRow) -> bool:
    """Whether a peer cannot run the network because it has no MaxUnpool."""
    return row.engine in PEERS and "MaxUnpool" in row.operators
