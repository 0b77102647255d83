"""Writes the table of docs/platforms.md from docs/platforms.json, which has a record of each run of the tests.

    python docs/platforms.py                                    writes the table
    python docs/platforms.py add HOW WHAT --junit FILE          adds a run of this Python: counts as pytest wrote them
    python docs/platforms.py add HOW WHAT --target TARGET       adds a platform that nothing ran on

A run replaces the one that it repeats.
"""

import argparse
import json
import platform
import re
import sysconfig
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from xml.etree import ElementTree

PAGE = Path(__file__).with_name("platforms.md")
RUNS = Path(__file__).with_name("platforms.json")
TABLE = re.compile(r"(<!-- runs -->\n).*?(?=<!-- end of runs -->)", re.DOTALL)
PACKAGES = ("numpy", "numba", "onnx", "onnxruntime")
COLUMNS = ("system", "processor", "python", *PACKAGES, "how", "what", "result", "date")
IDENTITY = ("system", "processor", "python", *PACKAGES, "what")
SYSTEMS = {"linux": "Linux", "macos": "macOS", "windows": "Windows"}
PROCESSORS = {"AMD64": "x86-64", "x86_64": "x86-64", "arm64": "AArch64", "aarch64": "AArch64"}

Run = Mapping[str, str]


def page() -> str:
    """The text of docs/platforms.md, with the table of the runs on record."""
    return TABLE.sub(lambda found: found[1] + table(json.loads(RUNS.read_text())), PAGE.read_text(encoding="utf-8"))


def table(runs: list[Run]) -> str:
    """The runs, sorted by platform."""
    rows = [COLUMNS, ["---"] * len(COLUMNS), *([run[name] for name in COLUMNS] for run in sorted(runs, key=order))]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def order(run: Run) -> tuple[object, ...]:
    """Linux first, then systems, processors and releases in their order."""
    releases = [[int(part) for part in re.findall(r"\d+", run[name])] for name in ("python", *PACKAGES)]
    return run["system"] != "Linux", run["system"], run["processor"] != "x86-64", releases, run["what"]


def this_platform() -> dict[str, str]:
    """The system, the processor, Python and packages of this process."""
    free_threaded = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    return {
        "system": {"Darwin": "macOS"}.get(platform.system(), platform.system()),
        "processor": PROCESSORS.get(platform.machine(), platform.machine()),
        "python": platform.python_version() + free_threaded,
        **{name: installed(name) for name in PACKAGES},
    }


def installed(package: str) -> str:
    """The version of a package, or a dash."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "–"


def of_target(target: str) -> dict[str, str]:
    """The platform that a target of `python -m unpool.build` names, such as "aarch64-macos"."""
    processor, system, *_ = target.split("-")
    unknown = dict.fromkeys(("python", *PACKAGES), "–")
    return {"system": SYSTEMS[system], "processor": PROCESSORS[processor], **unknown}


def counts(files: Iterable[Path]) -> str:
    """How many tests passed, were skipped and failed, from files of pytest's `--junitxml`."""
    total, skipped, failed = 0, 0, 0
    for suite in chain.from_iterable(ElementTree.parse(file).getroot().iter("testsuite") for file in files):
        total += int(suite.attrib["tests"])
        skipped += int(suite.attrib["skipped"])
        failed += int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    found = {"passed": total - skipped - failed, "skipped": skipped, "failed": failed}
    return ", ".join(f"{number:,} {word}" for word, number in found.items() if number)


def add(run: Run) -> None:
    """Put a run into the records, in place of the one that it repeats."""
    others = [each for each in json.loads(RUNS.read_text()) if any(each[name] != run[name] for name in IDENTITY)]
    RUNS.write_text(json.dumps(sorted([*others, run], key=order), indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    """Add a run if the command line has one, and write the page."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command")
    adding = commands.add_parser("add")
    adding.add_argument("how", choices=["real", "emulated", "faked", "linked only"])
    adding.add_argument("what", help="what ran, in a few words")
    adding.add_argument(
        "--junit", type=Path, nargs="+", metavar="FILE", help="counts, as pytest's --junitxml wrote them"
    )
    adding.add_argument("--result", default="–", help="in place of counts")
    adding.add_argument("--target", help="another platform than this one, as unpool.build names it")
    given = parser.parse_args()
    if given.command == "add":
        where = of_target(given.target) if given.target else this_platform()
        today = datetime.now(UTC).date().isoformat()
        result = counts(given.junit) if given.junit else given.result
        add({**where, "how": given.how, "what": given.what, "result": result, "date": today})
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
