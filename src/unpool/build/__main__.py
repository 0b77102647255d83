"""Build the libraries of kernels that unpool is shipped with, for all levels of a target, and their manifest.

With --onnxruntime, build the library of operators for onnxruntime instead.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from unpool.build.targets import TARGETS, Target, host_target
from unpool.kernels.cpu.machine import host, libraries
from unpool.kernels.cpu.machine.checked_files import source_digest
from unpool.onnxruntime import library


def main() -> None:
    """`python -m unpool.build`."""
    parser = argparse.ArgumentParser(prog="python -m unpool.build", description=__doc__)
    here = host_target()
    parser.add_argument(
        "--onnxruntime", action="store_true",
        help="build only the library of operators for onnxruntime; default of --output: where unpool looks for it",
    )  # fmt: skip
    parser.add_argument(
        "--target", choices=TARGETS, default=here and here.name, help="the system and processor; default: this one"
    )
    parser.add_argument(
        "--level", action="append", help="a level of processors, or native for this one's; default: all of the target"
    )
    parser.add_argument("--only", default="", help="text in the names of kernels; default: all of the catalogue")
    parser.add_argument("--output", type=Path, help="the folder of the libraries; default: build/libraries")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that compile at once")
    options = parser.parse_args()
    if find_spec("ziglang") is None:
        parser.error("libraries are linked by the package ziglang, which is not installed: pip install ziglang")
    if options.jobs < 1:
        parser.error(f"--jobs: expected 1 or more, got {options.jobs}")
    if not options.target:
        parser.error(f"no target is this machine; choose one of {', '.join(TARGETS)}")
    if options.onnxruntime:
        _build_operators(parser, TARGETS[options.target], options.output)
        return
    options.output = options.output or Path("build/libraries")
    chosen = [host.level().name if level == "native" else level for level in options.level or ()]
    wrong = set(chosen) - TARGETS[options.target].processors.keys()
    if wrong:
        levels = ", ".join(TARGETS[options.target].processors)
        parser.error(f"--level: expected native, {levels}; got {', '.join(sorted(wrong))}")
    target = TARGETS[options.target]
    for number in _SIGNALS:
        signal.signal(number, _exit)
    entries: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for level in chosen or target.processors:
            start = time.perf_counter()
            path = Path(folder, target.file(level))
            kernels = build_library(target, level, path, options.only, options.jobs)
            if not kernels:
                parser.error(f"--only: no kernel of the catalogue has {options.only!r} in its name")
            size, digest = path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()
            entries[level] = {"file": path.name, "sha256": digest, "kernels": kernels}
            print(f"{path.name}: {kernels} kernels, {size / 1e6:.1f} MB, {time.perf_counter() - start:.0f} s")  # noqa: T201
        options.output.mkdir(parents=True, exist_ok=True)
        for entry in entries.values():
            shutil.copyfile(Path(folder, entry["file"]), options.output / entry["file"])
    _write_manifest(options.output / libraries.MANIFEST, target, options.only, entries)


_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def _exit(number: int, _: Any) -> None:
    """Stop the compilers, remove their folder, and exit."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def _build_operators(parser: argparse.ArgumentParser, target: Target, output: Path | None) -> None:
    """Write the library of operators for onnxruntime."""
    if output is None and target != host_target():
        parser.error(f"--onnxruntime: a library for {target.name} needs --output, as this machine cannot load it")
    path = (output or library.FOLDER) / library.NAMES[target.system]
    library.compile_library(target.name, target.system, path)
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")  # noqa: T201


def build_library(target: Target, level: str, path: Path, only: str, jobs: int) -> int:
    """Write the library for a level, with the kernels whose names contain `only`; their number, no file if it is 0."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        environment = os.environ | {"UNPOOL_LEVEL": level, "UNPOOL_KERNELS": "compiled"}
        compiler = [sys.executable, "-m", "unpool.build.compile", target.name, level, folder, only]
        _run([[*compiler, str(share), str(jobs)] for share in range(jobs)], environment)
        kernels = sorted(map(str, Path(folder).glob("unpool_*.o")))
        if kernels:
            library = Path(folder, path.name)
            linker = [
                sys.executable,
                "-m",
                "ziglang",
                "cc",
                "-target",
                target.name,
                "-shared",
                "-s",
                "-o",
                str(library),
            ]
            _run([[*linker, *target.link_options, str(Path(folder, "runtime.o")), *kernels]], dict(os.environ))
            library.rename(path)
    return len(kernels)


def _run(commands: list[list[str]], environment: dict[str, str]) -> None:
    """Run commands in parallel; SystemExit if one of them fails. All have ended when this function returns."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes.extend(subprocess.Popen(command, env=environment) for command in commands)
        for process in processes:
            if process.wait():
                raise SystemExit(f"{' '.join(commands[0][1:3])} ended with exit code {process.returncode}, see above.")
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _write_manifest(path: Path, target: Target, only: str, entries: dict[str, Any]) -> None:
    """Write the manifest. It also lists libraries of other levels that an earlier run built from the same sources."""
    manifest = {"platform": target.tag, "sources": source_digest(".py"), "only": only, "libraries": entries}
    with suppress(OSError, ValueError):
        earlier = json.loads(path.read_text())
        others = {level: entry for level, entry in earlier["libraries"].items() if level not in entries}
        if {**earlier, "libraries": entries} == manifest:
            manifest["libraries"] = others | entries
        elif others:
            print(  # noqa: T201
                f"{path}: libraries for {', '.join(others)} are left out, as their platform, sources or --only differ."
            )
    part = path.with_suffix(".part")
    part.write_text(json.dumps(manifest, indent=1) + "\n")
    part.replace(path)


if __name__ == "__main__":
    main()
