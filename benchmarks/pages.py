"""The pages that show the results: docs/speed.md and docs/speed-networks.md, and a few rows of both in the README."""

import os
from collections.abc import Sequence
from pathlib import Path

from benchmarks import RESULTS, ROOT
from benchmarks.library_tables import markdown as markdown_of_library
from benchmarks.library_tables import short_table
from benchmarks.pictures import drawn
from benchmarks.rows import LibraryRow, SteadyRow, ZooRow
from benchmarks.standings import Standing, Standings
from benchmarks.steady_tables import markdown as markdown_of_runs
from benchmarks.tables import BEST, conditions, label, markdown, source, times
from benchmarks.zoo.tables import markdown as markdown_of_zoo
from unpool.files import write

MANUAL = ROOT / "benchmarks" / "README.md"
BEGIN, END = "<!-- speed:begin -->", "<!-- speed:end -->"
TITLES = {
    "max_pool": "MaxPool",
    "max_unpool": "MaxUnpool",
    "conv_transpose": "ConvTranspose",
    "training": "Training, forward and backward, through `unpool.torch`",
    "network": "Whole networks",
}
"""The suites that have a table; the others are drawn only."""

OPERATOR_SUITES = tuple(suite for suite in TITLES if suite != "network")
NETWORKS_PAGE = "speed-networks.md"  # next to the page of operators

FOR_OPERATORS = f"""\
For readers who want to know what single operators gain: times of MaxPool, MaxUnpool and ConvTranspose, and of training
with them, next to onnxruntime, PyTorch and OpenVINO, and where unpool is slower. [Whole networks]({NETWORKS_PAGE})
have a page of their own. `unpool bench model.onnx` times your model on your machine."""

FOR_NETWORKS = """\
For readers who want to know what a whole model gains, before they try their own with `unpool bench model.onnx`: times,
loading and memory of networks in onnxruntime, with unpool's operators inside onnxruntime, in unpool's session, and in
OpenVINO. [Single operators](speed.md) have a page of their own."""

SHORT_TITLES = {**TITLES, "training": "training", "network": "whole network"}

README_ROWS = (
    "max_pool/VGG-16 pool 1, 8 images/float32",
    "max_unpool/SegNet last unpool, 8 images/float32",
    "conv_transpose/pix2pix up 256/float32",
    "conv_transpose/U-Net up 1024/float32",
    "training/U-Net up 256/float32",
)
"""Paths of the cases that the README shows: each operator, the largest gains, and losses."""

README_NETWORKS = ("SegNet", "3-D U-Net")
"""Names of the networks that the README shows, in onnxruntime and in unpool's session."""

STEADY = (
    "Milliseconds, median and 95th percentile, 2 to 20 runs at a time in turn, without the first 10 ms of each turn. "
    "*tuned* is a session with `tune=True`: the runtimes and algorithms that were fastest in a trial. *busy* means "
    'that another process kept a core busy; "–" means that the engine cannot run the network.'
)

ELSEWHERE = (
    "More measurements: [ConvTranspose in bfloat16](decisions/0008-sixteen-bit-products.md) against PyTorch on an "
    "Intel processor, [training and small calls](decisions/0009-torch-operators-without-the-dispatcher.md) against "
    "PyTorch there, [sessions](decisions/0015-one-list-of-passes.md#how-long-threads-spin) on a quiet and on a busy "
    "machine, and calls on [many cores](many-cores.md)."
)
"""What was measured on other machines, or could not be measured."""

BOTTLENECKS = """\
Reasons, measured on an Intel Emerald Rapids with two threads, 2026-11-23. Its memory reads 20 GB/s and writes 11 GB/s;
it computes 333 GFLOP/s.

- **Small calls in training** are PyTorch's own operators after a check of 5 µs: tiny call, tiny growth and ENet unpool.
- **Most training of ConvTranspose** is PyTorch's own operator on both sides: differences in those rows are noise.
- **U-Net up 1024**: the reason was not measured.

Rows can be faster than all others and still below their goals:

- **Pools of one image or of small maps** are limited by the bandwidth of caches. ResNet stem, 1 image, moves 5.6 MB at
  30 GB/s, Inception 6.4 MB at 27 GB/s, and SPP 5, values only, 12.8 MB at 30 GB/s.
- **CenterNet's depthwise ConvTranspose** reads 4.2 MB and writes 16.8 MB at 31 GB/s. The goal, 5 times as fast as
  PyTorch, would be 45 GB/s.
- **GAN head, 1 image**, reads each of its 8.4 MB of weights once, at 30 GB/s, as OpenVINO does.
- **Fresh outputs**: the operating system zeroes new memory page by page, for U-Net pool 1 50 MB, at 12 GB/s in all."""
"""Text about the results of one machine, written by hand."""


def operators_page(standings: Standings, page: Path) -> str:
    """The text of docs/speed.md: the conditions, and for each suite its plots, which are files next to it, and a table.

    Args:
        standings: of one machine.
        page: the file that the text is for.
    """
    parts = [f"# Speed of operators\n\n{FOR_OPERATORS}", _origin(page), f"{source(standings)}.", conditions(standings)]
    for suite in OPERATOR_SUITES:
        found = standings.of(suite)
        if found:
            pictures = [f"![{words}]({name})" for name, words in drawn(standings, suite).items()]
            parts += [f"## {TITLES[suite]}", *pictures, f"Milliseconds.\n\n{markdown(found)}"]
    return (
        "\n\n".join([*parts, "## Where unpool is slower, and why", slower_rows(standings), BOTTLENECKS, ELSEWHERE])
        + "\n"
    )


def slower_rows(standings: Standings) -> str:
    """The rows of operators that are slower than the fastest peer, as a list, the slowest first."""
    rows = sorted(_lost(standings, OPERATOR_SUITES), key=lambda pair: pair[0])
    lines = [f"- {SHORT_TITLES[one.case.suite]}, {label(one)}: {times(ratio)}" for ratio, one in rows]
    head = f"unpool is slower than the fastest peer in {len(rows)} rows of this page"
    return "\n".join([f"{head}:\n", *lines]) if lines else f"{head}."


def networks_page(
    standings: Standings,
    page: Path,
    steady: Sequence[SteadyRow] = (),
    zoo: Sequence[ZooRow] = (),
    library: Sequence[LibraryRow] = (),
) -> str:
    """The text of docs/speed-networks.md: a table per way to run a network.

    Args:
        standings: of one machine.
        page: the file that the text is for.
        steady: hundreds of runs of networks on the same machine.
        zoo: networks of other libraries, on one machine.
        library: networks in onnxruntime's sessions with unpool's operators, on one machine.
    """
    parts = [f"# Speed of networks\n\n{FOR_NETWORKS}", _origin(page)]
    if library:
        parts.append(f"## In onnxruntime's sessions\n\n{markdown_of_library(library)}")
    networks = standings.of("network")
    if networks:
        parts.append(f"## {TITLES['network']}\n\n{source(standings)}. Milliseconds; {BEST}.\n\n{markdown(networks)}")
    if steady:
        parts.append(f"## Whole networks, {_runs(steady)}\n\n{STEADY}\n\n{markdown_of_runs(steady)}")
    if zoo:
        parts.append(f"## Networks of other libraries\n\n{markdown_of_zoo(zoo)}")
    return "\n\n".join(parts) + "\n"


def _origin(page: Path) -> str:
    results, manual = (Path(os.path.relpath(path, page.parent)).as_posix() for path in (RESULTS, MANUAL))
    return f"`python -m benchmarks report` writes this page from the [results]({results}). [How to measure]({manual})."


def _runs(steady: Sequence[SteadyRow]) -> str:
    least, most = min(row.runs for row in steady), max(row.runs for row in steady)
    return f"{least} runs of each" if least == most else f"{least} to {most} runs of each"


def readme_section(standings: Standings, page: Path, library: Sequence[LibraryRow] = ()) -> str:
    """What stands between the README's markers: README_ROWS, README_NETWORKS, and the number of cases that are slower.

    Args:
        standings: of one machine.
        page: docs/speed.md, as the README links to it.
        library: networks in onnxruntime's sessions, on one machine.

    Raises:
        ValueError: a case of README_ROWS was not measured.
    """
    found = [_of(standings, path) for path in README_ROWS]
    head = f"{source(standings)}. Milliseconds; {BEST}."
    table = markdown(found, [SHORT_TITLES[one.case.suite] for one in found])
    networks = [short_table(library, README_NETWORKS)] if library else []
    return "\n\n".join([head, table, *networks, losses(standings, page)])


def losses(standings: Standings, page: Path) -> str:
    """How many rows of both pages are slower than the fastest peer, and which one is the slowest."""
    compared = [one for suite in TITLES for one in standings.of(suite) if one.ratio is not None]
    lost = _lost(standings, tuple(TITLES))
    pages = " and ".join(f"[{path}]({path})" for path in (page.as_posix(), page.with_name(NETWORKS_PAGE).as_posix()))
    tables = f"{pages} have all {len(compared)} rows"
    text = f"{tables}. unpool is slower than the fastest peer in {len(lost)} of them"
    if not lost:
        return f"{text}."
    ratio, worst = min(lost, key=lambda pair: pair[0])
    return f"{text}; the slowest is {SHORT_TITLES[worst.case.suite]}, {label(worst)}: {times(ratio)}."


def _lost(standings: Standings, suites: Sequence[str]) -> list[tuple[float, Standing]]:
    rows = [(one.ratio, one) for suite in suites for one in standings.of(suite) if one.ratio is not None]
    return [(ratio, one) for ratio, one in rows if ratio < 1]


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


def _of(standings: Standings, path: str) -> Standing:
    """The case of a path; where it was measured with used and with fresh memory, the one with used memory."""
    for one in standings.every:
        if one.case.path == path:
            return one
    raise ValueError(f"expected results of {path}, got none. Run python -m benchmarks run --cases '{path}'.")
