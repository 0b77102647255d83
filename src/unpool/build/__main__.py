"""Build the libraries of kernels that unpool is shipped with, for all levels of a target, and their manifest."""

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from unpool.build.targets import TARGETS, Target
from unpool.kernels.cpu.machine import host, libraries
from unpool.kernels.cpu.machine.checked_files import source_digest


def main() -> None:
    """`python -m unpool.build`."""
    parser = argparse.ArgumentParser(prog="python -m unpool.build", description=__doc__)
    parser.add_argument(
        "--target", choices=TARGETS, default=_host(), help="the system and processor; default: this one"
    )
    parser.add_argument(
        "--level", action="append", help="a level of processors, or native for this one's; default: all of the target"
    )
    parser.add_argument("--only", default="", help="text in the names of kernels; default: all of the catalogue")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("build/libraries"),
        help="the folder of the libraries; default: build/libraries",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that compile at once")
    options = parser.parse_args()
    if find_spec("ziglang") is None:
        parser.error("libraries are linked by the package ziglang, which is not installed: pip install ziglang")
    if not options.target:
        parser.error(f"no target is this machine; choose one of {', '.join(TARGETS)}")
    chosen = [host.level().name if level == "native" else level for level in options.level or ()]
    wrong = set(chosen) - TARGETS[options.target].processors.keys()
    if wrong:
        levels = ", ".join(TARGETS[options.target].processors)
        parser.error(f"--level: expected native, {levels}; got {', '.join(sorted(wrong))}")
    target = TARGETS[options.target]
    options.output.mkdir(parents=True, exist_ok=True)
    entries = {}
    for level in chosen or target.processors:
        start = time.perf_counter()
        path = options.output / target.file(level)
        kernels = build_library(target, level, path, options.only, options.jobs)
        content = path.read_bytes()
        entries[level] = {"file": path.name, "sha256": hashlib.sha256(content).hexdigest()}
        print(f"{path}: {kernels} kernels, {len(content) / 1e6:.1f} MB, {time.perf_counter() - start:.0f} s")  # noqa: T201
    manifest = {"platform": target.tag, "sources": source_digest(".py"), "libraries": entries}
    (options.output / libraries.MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")


def _host() -> str:
    """The target that is this machine."""
    here = platform.system(), platform.machine()
    return next((name for name, target in TARGETS.items() if (target.system, target.machine) == here), "")


def build_library(target: Target, level: str, path: Path, only: str, jobs: int) -> int:
    """Write the library for a level, of the kernels with `only` in their names; their number."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"UNPOOL_BUILD_LEVEL": level, "UNPOOL_KERNELS": "compiled"}
        command = [sys.executable, "-m", "unpool.build.compile", target.name, level, folder, only]

        def run(share: int) -> None:
            subprocess.run([*command, str(share), str(jobs)], check=True, env=environment)

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(run, range(jobs)))
        objects = sorted(map(str, Path(folder).glob("*.o")))
        link = [sys.executable, "-m", "ziglang", "cc", "-target", target.name, "-shared", "-s", "-o", str(path)]
        options = ["-Wl,-z,defs"] if target.system == "Linux" else []  # elsewhere, nothing undefined is the default
        subprocess.run([*link, *options, *objects], check=True)
    return len(objects) - 1


if __name__ == "__main__":
    main()
