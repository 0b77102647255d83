"""Results of a GPU as tables: what each engine takes, and how near the device's limits unpool comes."""

from collections.abc import Sequence
from math import exp, log

from benchmarks.gpu.cases import LEAST_BYTES
from benchmarks.gpu.engines import ENGINES
from benchmarks.rows import GpuDeviceRow, GpuRow
from benchmarks.tables import in_markdown, milliseconds, times

GOAL_SHARE = 0.85
GOAL_LEAST = 0.8
"""Of cuDNN's time over ours, for every single transposed convolution; their mean has to reach 1."""


def page(rows: Sequence[GpuRow], devices: Sequence[GpuDeviceRow]) -> str:
    """Everything that was measured on one device, with its conditions and goals."""
    limits = {each.type: each for each in devices}
    first = rows[0]
    versions = {row.engine: f"{ENGINES[row.engine].title} {row.version}" for row in rows}
    flops = ", ".join(f"{kind} {each.flops / 1e12:.0f}" for kind, each in limits.items())
    lines = [
        f"{first.device}, {first.date}: {', '.join(versions.values())}. A large copy moves "
        f"{devices[0].copy / 1e9:.0f} GB/s, a large product of matrices makes {flops} TFLOP/s. Medians of events "
        "on the device, its cache written over before each; float32 without TF32.",
    ]
    for way in dict.fromkeys(row.way for row in rows):
        lines += ["", _table([row for row in rows if row.way == way], limits)]
    return "\n".join([*lines, "", *goals(rows, devices)])


def goals(rows: Sequence[GpuRow], devices: Sequence[GpuDeviceRow]) -> list[str]:
    """What is to be reached, and whether it was."""
    copy = devices[0].copy
    ours = [row for row in rows if row.engine == "unpool"]
    large = [row.bytes / row.median / copy for row in ours if not row.flops and row.bytes >= LEAST_BYTES]
    found = []
    if large:
        reached = sum(share >= GOAL_SHARE for share in large)
        found.append(
            f"- {reached} of {len(large)} pools and unpoolings that move 8 MiB or more reach {GOAL_SHARE:.0%} of a "
            "copy's bandwidth."
        )
    ratios = [ratio for ratio in (_over(row, rows, ("cudnn",)) for row in ours) if ratio]
    if ratios:
        mean = exp(sum(map(log, ratios)) / len(ratios))
        found.append(
            f"- Transposed convolutions take cuDNN {times(mean)} as long as unpool in the geometric mean, "
            f"{times(min(ratios))} at least; the goals are 1.00× and {GOAL_LEAST:.2f}×."
        )
    return found


def _table(rows: Sequence[GpuRow], limits: dict[str, GpuDeviceRow]) -> str:
    peers = [name for name in ENGINES if name != "unpool" and any(row.engine == name for row in rows)]
    titles = [f"case, {rows[0].way}", "type", "unpool, ms", "p95", *(ENGINES[name].title for name in peers)]
    titles += ["× best", "GB/s", "of a copy", "TFLOP/s", "of a product"]
    return in_markdown(titles, 2, [_line(row, rows, peers, limits) for row in rows if row.engine == "unpool"])


def _line(row: GpuRow, rows: Sequence[GpuRow], peers: Sequence[str], limits: dict[str, GpuDeviceRow]) -> list[str]:
    limit, theirs = limits[row.type], {other.engine: other for other in rows if other.call == row.call}
    cells = [f"{row.case} {row.shape}", row.type, milliseconds(row.median), milliseconds(row.p95)]
    cells += [milliseconds(theirs[name].median) if name in theirs else "–" for name in peers]
    moved, made = row.bytes / row.median, row.flops / row.median
    cells += [times(_over(row, rows, peers)), f"{moved / 1e9:.0f}", f"{moved / limit.copy:.0%}"]
    return cells + ([f"{made / 1e12:.1f}", f"{made / limit.flops:.0%}"] if row.flops else ["–", "–"])


def _over(row: GpuRow, rows: Sequence[GpuRow], peers: Sequence[str]) -> float | None:
    """The fastest of these peers' time over ours."""
    found = [other.median for other in rows if other.call == row.call and other.engine in peers]
    return min(found) / row.median if found else None
