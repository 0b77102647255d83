"""Standings as pictures: bars on a log scale, and how cost grows with sizes, windows and channels."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.case import Call
from benchmarks.engines import ENGINES, UNPOOL
from benchmarks.standings import Standing, Standings
from benchmarks.tables import label

COLOURS = {"unpool": "#009E73", "onnxruntime": "#E69F00", "torch": "#D55E00", "openvino": "#0072B2"}
Law = tuple[Callable[[float], float], str]
LINEAR: Law = (float, "linear in the elements")
LOGARITHMIC: Law = (math.log2, "log2 of the side")
BAR = 0.8  # of the distance between two cases
DPI = 110


def bars(axes: Any, found: Sequence[Standing]) -> None:
    """Horizontal bars per engine with its spread (p20 to p80), and the machine's limit as a tick."""
    names = [engine for engine in ENGINES if engine.name == UNPOOL or any(engine.name in one.peers for one in found)]
    height = BAR / len(names)
    for number, engine in enumerate(names):
        rows = [one.ours if engine.name == UNPOOL else one.peers.get(engine.name) for one in found]
        places = [position + number * height for position, row in enumerate(rows) if row is not None]
        known = [row for row in rows if row is not None]
        spread = [[1e3 * (r.median - r.p20) for r in known], [1e3 * (r.p80 - r.median) for r in known]]
        axes.barh(
            places, [1e3 * row.median for row in known], height, xerr=spread,
            color=COLOURS[engine.name], label=engine.title, error_kw={"elinewidth": 0.8},
        )  # fmt: skip
    for position, one in enumerate(found):
        if one.limit:
            ends = [position - height / 2, position + BAR - height / 2]
            axes.plot([1e3 * one.limit] * 2, ends, color="black", linewidth=1, label="_" if position else "limit")
    labels = [label(one).replace(one.case.title, f"\n{one.case.title}", 1) for one in found]
    axes.set_yticks([position + (BAR - height) / 2 for position in range(len(found))], labels, fontsize=9)
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds (log scale, less is better)")
    axes.set_ylim(len(found) - height, -height)
    axes.figure.legend(fontsize=10, ncols=len(names) + 1, loc="outside upper center", frameon=False)


def growth(axes: Any, found: Sequence[Standing], value: Callable[[Call], int], law: Law, title: str) -> None:
    """Our time and the peers' over a number of the case, both on log scales, and the law that ours should follow."""
    shape, words = law
    calls = [one.case for one in found if isinstance(one.case, Call)]
    for engine in ENGINES:
        rows = [one.ours if engine.name == UNPOOL else one.peers.get(engine.name) for one in found]
        points = [(value(call), 1e3 * row.median) for call, row in zip(calls, rows, strict=True) if row is not None]
        if points:
            axes.loglog(*zip(*points, strict=True), marker="o", color=COLOURS[engine.name], label=engine.title)
    if calls:
        marks = [value(call) for call in calls]
        ours = 1e3 * found[0].ours.median
        axes.loglog(marks, [ours * shape(m) / shape(marks[0]) for m in marks], ":", color="black", label=words)
    axes.set_xlabel(title)
    axes.set_ylabel("milliseconds")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)


def draw_bars(suite: str) -> Callable[[Any, Standings], None]:
    """One bar chart."""

    def fill(figure: Any, standings: Standings) -> None:
        found = standings.of(suite)
        figure.set_size_inches(8, 1.2 + 0.5 * len(found))
        bars(figure.subplots(), found)

    return fill


def draw_growth(figure: Any, standings: Standings) -> None:
    """MaxPool over sizes, and over windows at stride 1."""
    figure.set_size_inches(8, 4)
    left, right = figure.subplots(1, 2)
    sizes, windows = standings.of("max_pool_sizes"), standings.of("max_pool_windows")
    growth(left, sizes, lambda call: math.prod(call.shape), LINEAR, "elements, window 3, stride 2")
    growth(right, windows, lambda call: call.window, LOGARITHMIC, "side of the window, stride 1")
    right.set_xscale("log", base=2)


def draw_flops(figure: Any, standings: Standings) -> None:
    """GFLOP/s of ConvTranspose over channels and sizes and the machine's peak."""
    figure.set_size_inches(8, 4)
    for axes, suite in zip(figure.subplots(1, 2, sharey=True), ("conv_transpose_k2", "conv_transpose_k4"), strict=True):
        found = standings.of(suite)
        for size in sorted({one.case.shape[2] for one in found}):
            chosen = [one for one in found if one.case.shape[2] == size]
            rates = [one.case.flops / one.ours.median / 1e9 for one in chosen]
            axes.plot([one.case.shape[1] for one in chosen], rates, marker="o", label=f"{size} × {size}")
        axes.axhline(standings.machine.flops / 1e9, color="black", linewidth=1, label="peak of the multipliers")
        axes.set_xscale("log", base=2)
        axes.set_xlabel("input channels")
        axes.set_ylabel("GFLOP/s as defined")
        axes.set_title(suite.replace("conv_transpose_k", "window ") + ", stride 2", fontsize=9)
        axes.legend(fontsize=8)


Drawing = tuple[Callable[[Any, Standings], None], str, tuple[str, ...]]
_DRAWINGS: dict[str, Drawing] = {
    "speed-max-pool.png": (draw_bars("max_pool"), "MaxPool: milliseconds per engine, log scale", ("max_pool",)),
    "speed-max-unpool.png": (draw_bars("max_unpool"), "MaxUnpool: milliseconds per engine, log scale", ("max_unpool",)),
    "speed-conv-transpose.png": (
        draw_bars("conv_transpose"),
        "ConvTranspose: milliseconds per engine, log scale",
        ("conv_transpose",),
    ),
    "speed-growth.png": (
        draw_growth,
        "MaxPool with indices: milliseconds over elements, and over the side of the window",
        ("max_pool_sizes", "max_pool_windows"),
    ),
    "speed-flops.png": (
        draw_flops,
        "ConvTranspose: GFLOP/s over channels and sizes, and the machine's peak",
        ("conv_transpose_k2", "conv_transpose_k4"),
    ),
}


def drawn(standings: Standings, suite: str = "") -> dict[str, str]:
    """The pictures that `draw` writes for these standings, with what each one shows: those whose suites are there.

    Args:
        standings: of one machine.
        suite: only pictures of this one, and of those whose names begin with its name.
    """
    return {
        name: words
        for name, (_, words, suites) in _DRAWINGS.items()
        if suites[0].startswith(suite) and all(standings.of(each) for each in suites)
    }


def draw(standings: Standings, folder: Path) -> Iterator[Path]:
    """Write every picture whose suites were measured; gives the paths as they are written."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    for name in drawn(standings):
        figure = Figure(layout="constrained")
        FigureCanvasAgg(figure)
        _DRAWINGS[name][0](figure, standings)
        figure.savefig(folder / name, dpi=DPI, metadata={"Software": None})
        yield folder / name
