"""The command `python -m benchmarks`: it runs benchmarks, and writes pages from their results.

Exit codes: 0 done; 1 a goal is missed, a row is slower than before, or unpool's result differs from its peers'; 2 wrong
arguments, or no results.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import RESULTS, ROOT
from benchmarks.case import Case
from benchmarks.engines import BY_NAME
from benchmarks.measure import DisagreementError, EngineError, Request, run, say
from benchmarks.mechanisms import MECHANISMS
from benchmarks.pages import NETWORKS_PAGE, networks_page, operators_page, readme_section, write_between
from benchmarks.rows import (
    GpuDeviceRow,
    GpuRow,
    LibraryRow,
    MachineRow,
    PartRow,
    Record,
    Row,
    SteadyRow,
    ZooRow,
    merged,
    read,
    write,
)
from benchmarks.shapes import STEADY, SUITES, matching
from benchmarks.standings import Standings, standings_of
from benchmarks.tables import goal_table
from unpool.execute import available_cores
from unpool.extras import require
from unpool.files import write as write_file
from unpool.runtime.measure.timing import Effort

FULL = Effort()
QUICK = Effort(warmup=1, repetitions=3, seconds=0, limit=0.2)
ROUNDS = 3
RUNS = 200


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser("python -m benchmarks", description="Time unpool and its peers.")
    commands = parser.add_subparsers(
        dest="command",
        required=True,
        metavar="COMMAND",
    )
    measure = commands.add_parser("run", help="measure, and write results")
    measure.add_argument("--engines", nargs="+", choices=list(BY_NAME), default=list(BY_NAME), metavar="NAME")
    measure.add_argument("--quick", action="store_true", help="one short round; writes only where --results says")
    pair = commands.add_parser("pair", help="time another checkout's unpool against this one")
    pair.add_argument("other", type=Path, metavar="FOLDER", help="that its package lies in, such as ../before/src")
    rent = commands.add_parser("rent", help="time what each mechanism earns: unpool with it and without")
    rent.add_argument("--mechanisms", nargs="+", choices=list(MECHANISMS), default=list(MECHANISMS), metavar="NAME")
    steady = commands.add_parser("steady", help="run whole networks many times: medians, and variation from run to run")
    steady.add_argument("names", nargs="*", metavar="NETWORK", help="part of a name, as 'U-Net'; all by default")
    steady.add_argument(
        "--runs", type=int, default=RUNS, metavar="N", help=f"of each engine, or more; by default {RUNS}"
    )
    steady.add_argument("--load", type=int, default=0, metavar="N", help="other processes that each keep a core busy")
    steady.add_argument("--without", nargs="+", choices=list(MECHANISMS), default=[], metavar="NAME")
    startup = commands.add_parser("startup", help="time from the start of a process to its first result")
    startup.add_argument("--runs", type=int, default=9, metavar="N", help="of each engine; 9 by default")
    choices = commands.add_parser("choices", help="time every kernel and algorithm against the chosen one")
    tiled = commands.add_parser("tiled", help="the cost of tiles: a slide, a photograph, blended windows")
    tiled.add_argument("what", choices=["slide", "photograph", "blending"])
    tiled.add_argument("--side", type=int, metavar="N", help="of the slide (20000) or the blended image (4096)")
    tiled.add_argument("--max-memory", default="2GiB", metavar="SIZE", help="of the slide or the photograph")
    tiled.add_argument("--folder", type=Path, default=Path("build/tiled"), help="for the files, build/tiled by default")
    gpu = commands.add_parser("gpu", help="time the operators on an NVIDIA GPU, and write the tables of docs/gpu.md")
    gpu.add_argument("--cases", nargs="+", default=["*"], metavar="PATTERN", help="of way/operator/name/type")
    gpu.add_argument("--page", type=Path, default=ROOT / "docs" / "gpu.md", metavar="PATH")
    device = commands.add_parser("device", help="one of six parts of an hour on a machine with a GPU and many cores")
    device.add_argument("--part", type=int, choices=range(1, 7), required=True, metavar="1..6")
    device.add_argument("--stub", action="store_true", help="part 4 without a GPU: no kernel starts")
    device.add_argument("--seconds", type=float, metavar="N", help="for the part; by default 510")
    device.add_argument("--page", type=Path, default=RESULTS / "device.md", metavar="PATH")
    zoo = commands.add_parser("zoo", help="export networks of other libraries, once, and time them")
    zoo.add_argument("names", nargs="*", metavar="NETWORK", help="part of a name, as 'monai'; all by default")
    zoo.add_argument("--only", choices=["export", "measure"], help="one of the two steps")
    zoo.add_argument("--folder", type=Path, metavar="PATH", help="for the files, in the user's cache by default")
    library = commands.add_parser("library", help="run networks in onnxruntime's sessions, alone and with the library")
    library.add_argument("names", nargs="*", metavar="NETWORK", help="part of a name, as 'SegNet'; all by default")
    for command in (measure, pair, rent, zoo, library):
        command.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"{ROUNDS} by default")
    for command in (measure, pair, choices):
        command.add_argument(
            "--cases", nargs="+", default=list(SUITES), metavar="PATTERN",
            help=f"suites ({', '.join(SUITES)}) or patterns of suite/name/type, as 'max_pool/VGG*'; all by default",
        )  # fmt: skip
    report = commands.add_parser(
        "report", help="write docs/speed.md, docs/speed-networks.md, pictures and the README's rows"
    )
    report.add_argument("--readme", type=Path, default=ROOT / "README.md", metavar="PATH")
    report.add_argument("--page", type=Path, default=ROOT / "docs" / "speed.md", metavar="PATH")
    check = commands.add_parser("check", help="hold the results against the goals")
    for command in (measure, pair, rent, steady, choices, device, zoo, library, report, check):
        command.add_argument("--threads", type=int, default=available_cores(), metavar="N", help="all cores by default")
    for command in (measure, steady, gpu, device, zoo, library, report, check):
        command.add_argument("--results", type=Path, metavar="FOLDER", help="benchmarks/results by default")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write or check."""
    given = parsed(arguments)
    commands = {
        "run": _run, "pair": _pair, "rent": _rent, "steady": _steady, "startup": _startup,
        "choices": _choices, "tiled": _tiled, "gpu": _gpu, "device": _device, "zoo": _zoo, "library": _library,
    }  # fmt: skip
    try:
        if given.command in commands:
            return commands[given.command](given)
        standings = standings_of(given.results or RESULTS, given.threads)
        return _report(standings, given) if given.command == "report" else _check(standings)
    except DisagreementError as error:
        say(f"benchmarks: {error}")
        return 1
    except (EngineError, ValueError) as error:
        say(f"benchmarks: {error}")
        return 2


def _run(given: argparse.Namespace) -> int:
    cases = _cases(given)
    effort, rounds = (QUICK, 1) if given.quick else (FULL, given.rounds)
    rows, machines = run(Request(cases, given.engines, given.threads, rounds, effort))
    folder = given.results or (None if given.quick else RESULTS)
    if folder is not None:
        for suite, new in rows.items():
            _update(folder / f"{suite}.csv", Row, new)
        _update(folder / "machine.csv", MachineRow, machines)
    return 0


def _pair(given: argparse.Namespace) -> int:
    from benchmarks.pair import Side, pairs, report

    found = pairs(Side(given.other), _cases(given), given.threads, given.rounds)
    print(report(found))
    return int(any(pair.is_slower for pair in found))


def _rent(given: argparse.Namespace) -> int:
    from benchmarks.rent import earned, report

    print(report(earned(given.mechanisms, given.threads, given.rounds)))
    return 0


def _steady(given: argparse.Namespace) -> int:
    from benchmarks.steady import rows_of, steady
    from benchmarks.steady_tables import report

    found = steady(_networks(given), given.without, given.threads, given.runs, given.load)
    print(report(found))
    _update((given.results or RESULTS) / "steady.csv", SteadyRow, rows_of(found, given.threads, given.load))
    return 0


def _startup(given: argparse.Namespace) -> int:
    from benchmarks.startup import startup

    for line in startup(given.runs):
        say(line)
    return 0


def _networks(given: argparse.Namespace) -> list[Case]:
    return [case for case in STEADY if not given.names or any(name in case.name for name in given.names)]


def _choices(given: argparse.Namespace) -> int:
    from benchmarks.choices import choices, report

    print(report(list(choices(_cases(given), given.threads))))
    return 0


def _tiled(given: argparse.Namespace) -> int:
    from benchmarks.tiled import blending, photograph, slide

    given.folder.mkdir(parents=True, exist_ok=True)
    lines = {
        "slide": lambda: slide(given.folder, given.side or 20_000, given.max_memory),
        "photograph": lambda: photograph(given.folder, 4000, 6000, given.max_memory),
        "blending": lambda: blending(given.side or 4096, 1024),
    }
    for line in lines[given.what]():
        say(line)
    return 0


def _gpu(given: argparse.Namespace) -> int:
    from benchmarks.gpu.cases import matching_gpu
    from benchmarks.gpu.device import Clock, check_device, measured
    from benchmarks.gpu.page import page
    from benchmarks.gpu.run import device_rows, measure

    check_device()
    chosen = matching_gpu(given.cases)
    clock = Clock()
    device = measured(clock)
    rows: list[GpuRow] = []
    devices, folder = device_rows(device), given.results or RESULTS
    try:
        rows.extend(measure(chosen, device, clock))
    finally:  # whatever was measured before it was stopped is kept
        _update(folder / "gpu.csv", GpuRow, rows)
        _update(folder / "gpu_device.csv", GpuDeviceRow, devices)
    write_between(given.page, page(rows, devices))
    say(f"wrote {given.page}")
    return 0


def _device(given: argparse.Namespace) -> int:
    from benchmarks.device_page import page
    from benchmarks.device_parts import FAILED, SECONDS, Deadline, PartRun, check_part, machine_name, run_part

    deadline = Deadline(SECONDS if given.seconds is None else given.seconds)
    check_part(given.part, given.stub)
    run, folder = PartRun(given.part, deadline, machine_name(), given.threads, given.stub), given.results or RESULTS
    try:
        run_part(run)
    finally:  # whatever was measured before it was stopped is kept
        for name, kind, new in (
            ("device", PartRow, run.rows), ("gpu", GpuRow, run.gpu_rows), ("gpu_device", GpuDeviceRow, run.gpu_devices)
        ):  # fmt: skip
            if new:
                _update(folder / f"{name}.csv", kind, new)
    rows = [row for row in read(folder / "device.csv", PartRow) if row.machine == run.machine]
    write_file(given.page, page(rows).encode())
    say(f"wrote {given.page}")
    return int(any(row.state == FAILED for row in run.rows))


def _zoo(given: argparse.Namespace) -> int:
    from benchmarks.zoo.export import export_missing
    from benchmarks.zoo.measure import measure
    from benchmarks.zoo.model_file import ModelFile, default_folder
    from benchmarks.zoo.networks import matching as matching_networks
    from benchmarks.zoo.tables import markdown

    folder = (given.folder or default_folder()).absolute()
    networks = matching_networks(given.names)
    files = [ModelFile(folder, network.name, network.share) for network in networks]
    if given.only != "measure":
        export_missing(networks, folder)
    if given.only == "export":
        return 0
    require("zoo", "bench", "onnxruntime", "openvino")
    path = (given.results or RESULTS) / "zoo.csv"

    def save(rows: list[ZooRow]) -> None:
        write(path, merged(read(path, ZooRow), rows))

    print(markdown(measure(files, given.threads, given.rounds, save)))
    return 0


def _library(given: argparse.Namespace) -> int:
    from benchmarks.library import matching as matching_networks
    from benchmarks.library import measure
    from benchmarks.library_tables import markdown

    networks = matching_networks(given.names)
    if not networks:
        raise ValueError(f"expected networks, found none for {' '.join(given.names)}. See benchmarks/library.py.")
    path = (given.results or RESULTS) / "library.csv"
    print(markdown(measure(networks, given.threads, given.rounds, lambda rows: _update(path, LibraryRow, rows))))
    return 0


def _cases(given: argparse.Namespace) -> Sequence[Case]:
    found = matching(given.cases)
    if not found:
        raise ValueError(f"expected cases, found none for {' '.join(given.cases)}. See benchmarks/shapes.py.")
    return found


def _report(standings: Standings, given: argparse.Namespace) -> int:
    from benchmarks.library_tables import latest as latest_library
    from benchmarks.pictures import draw
    from benchmarks.steady import kept_runs
    from benchmarks.zoo.tables import latest

    library = latest_library(read((given.results or RESULTS) / "library.csv", LibraryRow))
    rows = readme_section(standings, Path(os.path.relpath(given.page, given.readme.parent)), library)
    for path in draw(standings, given.page.parent):
        say(f"wrote {path}")
    steady = kept_runs(given.results or RESULTS, standings.machine)
    zoo = latest(read((given.results or RESULTS) / "zoo.csv", ZooRow))
    networks = given.page.with_name(NETWORKS_PAGE)
    write_file(given.page, operators_page(standings, given.page).encode())
    write_file(networks, networks_page(standings, networks, steady, zoo, library).encode())
    say(f"wrote {given.page}\nwrote {networks}")
    write_between(given.readme, rows)
    say(f"wrote {given.readme}")
    return 0


def _check(standings: Standings) -> int:
    print(goal_table(standings))
    return int(any(one.has_missed for one in standings.every))


def _update(path: Path, kind: type[Record], new: Sequence[Record]) -> None:
    write(path, merged(read(path, kind), new))
    say(f"wrote {path}")


if __name__ == "__main__":
    sys.exit(main())
