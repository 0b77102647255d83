"""The networks of the zoo as tables: those that lose first."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import geometric_mean
from typing import Literal, TypeAlias

from benchmarks.engines import EVERY, TUNED, UNPOOL
from benchmarks.rows import ZooRow
from benchmarks.tables import in_markdown, milliseconds, times
from benchmarks.zoo import later_networks, unfitted_networks
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
    "Milliseconds, median and 95th percentile; *tuned* is a session that was tuned on the same inputs; *best* is the "
    "faster one of onnxruntime and OpenVINO. The networks that are slowest against it come first."
)

RESOURCES = (
    "Seconds to load the model for the first time, to load it later, and of its first run, and the peak of resident "
    "megabytes above what imports take. Later loads of a tuned session use the stored choice of the trial; a dash "
    "means that they were not measured."
)

OTHERS = (
    ("Networks that were chosen after the work on the others was done; no rule changed for them.", later_networks),
    (
        "Networks of further libraries, to which nothing was fitted but the rule for Einsum, to Demucs.",
        unfitted_networks,
    ),
)
"""The text above each further table, and the module with its networks."""

FEW = 0.97
"""A ratio below which a network counts as slower than a peer."""

SLOW_TEXT = (
    f"Below {FEW}× of onnxruntime, or tuned of the best peer: the first nodes that unpool computes, in the order of a "
    "run; onnxruntime where it computes none."
)

SHOWN_STEPS = 4
"""Nodes of a network that is slower, by name; more are counted."""

ByEngine: TypeAlias = Mapping[str, ZooRow]


def latest(rows: Sequence[ZooRow]) -> list[ZooRow]:
    """The rows of the machine and number of threads that were measured last."""
    if not rows:
        return []
    last = max(rows, key=lambda row: row.date)
    return [row for row in rows if (row.cpu, row.threads) == (last.cpu, last.threads)]


def markdown(rows: Sequence[ZooRow]) -> str:
    """Text and tables of the rows of one machine."""
    every = by_network(rows)
    named = [frozenset(network.name for network in module.NETWORKS) for _, module in OTHERS]
    networks = {name: engines for name, engines in every.items() if not any(name in names for names in named)}
    parts = [f"{_source(rows)} {TEXT}{_noise(every)}", _durations(networks), _means(networks)]
    for (text, _), names in zip(OTHERS, named, strict=True):
        others = {name: engines for name, engines in every.items() if name in names}
        parts += [text, _durations(others), _means(others)] if others else []
    slow = [line for name, engines in every.items() for line in _slow_lines(name, engines)]
    parts += [f"{SLOW_TEXT}\n\n" + "\n".join(slow)] if slow else []
    missing = [f"- {row.network}: {row.reason}" for row in rows if row.engine == EXPORT]
    refused = [
        f"- {row.network}, {EVERY[row.engine].title}: {row.reason}"
        for row in rows
        if row.engine != EXPORT and row.reason and not _is_expected(row)
    ]
    parts += [RESOURCES, _resource_means(every), _resources(every)]
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


def gain(
    engines: ByEngine,
    ours: str,
    peers: Sequence[str] = PEERS,
    quantity: Literal["median", "p95", "load", "reload", "memory"] = "median",
) -> float | None:
    """A quantity of the fastest of these peers over that of ours; None where one is missing."""
    best = min((engines[peer] for peer in peers if peer in engines), key=lambda row: row.median, default=None)
    if best is None or ours not in engines:
        return None
    return float(getattr(best, quantity) / max(getattr(engines[ours], quantity), 1e-9))


def _noise(networks: Mapping[str, ByEngine]) -> str:
    """The ratios of networks that run the same way in both engines; nothing but the machine makes them differ."""
    whole = [each for each in networks.values() if each[UNPOOL].steps == ONNXRUNTIME]
    ratios = sorted(ratio for ratio in (gain(each, UNPOOL, [ONNXRUNTIME]) for each in whole) if ratio)
    if len(ratios) < 2:
        return ""
    half = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    most, some = (f"{times(low)} to {times(high)}" for low, high in ((ratios[0], ratios[-1]), half))
    return (
        f" In {len(ratios)} networks unpool leaves the whole file to onnxruntime, which runs it as it does alone: "
        f"their ratios, {most}, and in half of them {some}, are the noise of the machine."
    )


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
        sizes = row.input.replace("x", "x<wbr>")  # where a narrow column breaks it
        lines.append([name, sizes, row.operators or "–", *cells, *map(times, ratios)])
    return in_markdown(titles, 3, lines)


def _means(networks: Mapping[str, ByEngine]) -> str:
    """Geometric means of each group, and of all networks."""
    titles = [
        "geometric mean", "networks", "unpool, × onnxruntime", *(f"{EVERY[name].title}, × best" for name in OURS),
        "95th percentile of unpool, × onnxruntime", "of unpool, tuned, × best",
    ]  # fmt: skip
    groups = {group: [each for each in networks.values() if each[UNPOOL].group == group] for group in GROUPS}
    lines = [_mean_cells(group, members) for group, members in groups.items() if members]
    return in_markdown(titles, 1, [*lines, _mean_cells("all", list(networks.values()))])


def _mean_cells(title: str, members: Sequence[ByEngine]) -> list[str]:
    columns = [[gain(each, UNPOOL, [ONNXRUNTIME]) for each in members]]
    columns += [[gain(each, ours) for each in members] for ours in OURS]
    columns += [[gain(each, UNPOOL, [ONNXRUNTIME], "p95") for each in members]]
    columns += [[gain(each, TUNED.name, quantity="p95") for each in members]]
    return [title, str(len(members)), *(times(_mean(column)) for column in columns)]


def _mean(ratios: Sequence[float | None]) -> float | None:
    known = [ratio for ratio in ratios if ratio]
    return geometric_mean(known) if known else None


def _slow_lines(name: str, engines: ByEngine) -> Iterator[str]:
    """The steps of a network that is slower than a peer."""
    for ours, peers in ((UNPOOL, [ONNXRUNTIME]), (TUNED.name, PEERS)):
        ratio = gain(engines, ours, peers)
        if ratio is not None and ratio < FEW:
            steps = engines[ours].steps.split(", ")
            more = f", and {len(steps) - SHOWN_STEPS} more" if len(steps) > SHOWN_STEPS else ""
            yield f"- {name}, {EVERY[ours].title}, {times(ratio)}: {', '.join(steps[:SHOWN_STEPS])}{more}"


def _resource_means(networks: Mapping[str, ByEngine]) -> str:
    """How much longer and larger unpool is than onnxruntime while it loads, in the geometric mean."""
    titles = ["geometric mean, × onnxruntime", *(EVERY[name].title for name in OURS)]
    lines = []
    for title, quantity in (("first load", "load"), ("later loads", "reload"), ("peak memory", "memory")):
        gains = [[gain(each, ours, [ONNXRUNTIME], quantity) for each in networks.values()] for ours in OURS]
        means = [_mean(column) for column in gains]
        lines.append([title, *(times(1 / mean if mean else None) for mean in means)])
    return in_markdown(titles, 1, lines)


def _resources(networks: Mapping[str, ByEngine]) -> str:
    """Loads, first run and peak memory of each engine."""
    titles = ["network", *(f"{EVERY[name].title}: load / later / first run / MB" for name in ENGINES)]
    lines = [[name, *(_resource_cell(engines.get(engine)) for engine in ENGINES)] for name, engines in networks.items()]
    return in_markdown(titles, 1, lines)


def _cell(row: ZooRow | None) -> str:
    return "–" if row is None else f"{milliseconds(row.median)} / {milliseconds(row.p95)}"


def _resource_cell(row: ZooRow | None) -> str:
    if row is None:
        return "–"
    later = f"{row.reload:.2f}" if row.reload else "–"
    return f"{row.load:.2f} / {later} / {row.first:.3f} / {row.memory / 1e6:.0f}"


def _source(rows: Sequence[ZooRow]) -> str:
    measured = [row for row in rows if row.engine in EVERY]
    versions = {EVERY[row.engine].title: row.version for row in measured if row.engine != TUNED.name and row.version}
    dates = sorted({row.date for row in rows})
    date = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    engines = ", ".join(f"{title} {version}" for title, version in versions.items())
    runs = min(row.runs for row in measured if row.runs)
    return f"{rows[0].cpu}, {rows[0].threads} threads, {date}: {engines}. At least {runs} runs of each."


def _is_expected(row: ZooRow) -> bool:
    """Whether a peer cannot run the network because it has no MaxUnpool."""
    return row.engine in PEERS and "MaxUnpool" in row.operators
