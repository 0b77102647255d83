"""Chooses the tests of a run, and counts the kernels that it compiles.

1. `python -m pytest` runs the first tier, which is every test without one of the markers in `GROUPS`.
2. `-m slow` runs the second tier, and `-m NAME` another group. An expression that names no group adds none.
3. A file or a test that is named on the command line runs as a whole, whatever its markers.
4. `TEST_QUARTER=0` to `3` keeps a quarter of the tests in the second tier, which is fixed by their names.
5. A run without a path takes a worker per core; a run of some path takes one process, unless `-n` says otherwise.
"""

import os
import re
import signal
import time
from collections import Counter
from glob import glob
from zlib import crc32

import pytest
from numba.core import event

from unpool.kernels.cpu.machine import libraries
from unpool.kernels.cpu.machine.jit import Kernel

if not glob("/dev/nvidia[0-9]*"):
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is first imported; nobody has yet

MOST_SPECIALISATIONS = 180

GROUPS = {"slow", "widths", "gpu_interpreter", "peers"}
"""Markers of tests that only run when they are asked for."""

QUARTERS = 4

SLOWEST = (
    "test_widths.py", "test_kernel_cache.py", "test_pool_kernels.py", "test_leaks.py", "test_torch_alone.py",
    "test_all_node_tests.py", "test_fuzz.py", "test_cluster.py",
)  # fmt: skip
"""Files that take long; they come first, so that no worker is left alone with one at the end."""

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts a job in the background ignores Ctrl-C


class CompileMeter(event.Listener):
    """The seconds of processor time that are spent on compiling."""

    def __init__(self):
        self.seconds = 0.0
        self._depth = 0
        self._started = 0.0

    def on_start(self, happened):
        """A dispatcher begins to compile, perhaps inside another one."""
        if self._depth == 0:
            self._started = time.process_time()
        self._depth += 1

    def on_end(self, happened):
        """A dispatcher is done; only the outermost one adds its time."""
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.process_time() - self._started


def pytest_configure(config):
    """Note every kernel that is looked up: its name, compile-time constants and the types of its arguments."""
    find = Kernel.entry_point

    def entry_point(kernel, args):
        if kernel.name.startswith("unpool."):
            SEEN.add(f"{kernel.name} ({libraries.type_names(args)})")
        return find(kernel, args)

    Kernel.entry_point = entry_point


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Run the whole suite on all cores: xdist reads these options in the same hook."""
    is_whole = config.args_source is not pytest.Config.ArgsSource.ARGS
    is_worker = "PYTEST_XDIST_WORKER" in os.environ or hasattr(config, "workerinput")
    if (
        is_whole
        and not is_worker
        and config.option.numprocesses is None
        and not config.option.collectonly
        and not config.option.usepdb
    ):
        config.option.numprocesses = "auto"
        if config.option.dist == "no":
            config.option.dist = "loadfile"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Drop the groups that nothing asks for, and put the slowest files first."""
    mark_slow(items)
    asked = GROUPS & set(re.findall(r"\w+", config.option.markexpr))
    named = [argument.split("::")[0] for argument in config.args]
    files = {(config.invocation_params.dir / name).resolve() for name in named}
    dropped = [item for item in items if not is_chosen(item, asked, files)]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if is_chosen(item, asked, files)]
    order = {name: number for number, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


def mark_slow(items):
    """Mark groups that take minutes as slow, and all but every n-th case of a test with the marker sample(n)."""
    counts = Counter()
    for item in items:
        if item.get_closest_marker("gpu_interpreter") or item.get_closest_marker("peers"):
            item.add_marker("slow")
        sample = item.get_closest_marker("sample")
        if sample is not None:
            function = item.nodeid.split("[")[0]
            if counts[function] % sample.args[0]:
                item.add_marker("slow")
            counts[function] += 1


def is_chosen(item, asked, files):
    """Whether a test belongs to the run: it is in no group, in one that is asked for, or its file is named."""
    groups = GROUPS & {marker.name for marker in item.iter_markers()}
    if not groups or item.path in files:
        return True
    quarter = os.environ.get("TEST_QUARTER", "")
    if quarter and crc32(item.nodeid.encode()) % QUARTERS != int(quarter) % QUARTERS:
        return False
    return bool(groups & asked)


METER = CompileMeter()
SEEN = set()
event.register("numba:compile", METER)


def pytest_testnodedown(node, error):
    """Add what a worker had: a kernel in two workers is one specialisation, their seconds are added up."""
    found = getattr(node, "workeroutput", {})
    SEEN.update(found.get("specialisations", ()))
    METER.seconds += found.get("seconds", 0.0)


def pytest_terminal_summary(terminalreporter):
    """Print the number of kernels, their names if they were too many, and the time of compiling."""
    if len(SEEN) > MOST_SPECIALISATIONS:
        for kernel, count in Counter(each.split(" ")[0] for each in SEEN).most_common():
            terminalreporter.write_line(f"{count:4} {kernel}")
    terminalreporter.write_line(
        f"kernels: {len(SEEN)} specialisations (at most {MOST_SPECIALISATIONS}), "
        f"compiled in {METER.seconds:.1f} s of processor time"
    )


def pytest_sessionfinish(session, exitstatus):
    """Too many specialisations fail the run even if every test passed; a worker hands its own to the main process."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput |= {"specialisations": sorted(SEEN), "seconds": METER.seconds}
    elif exitstatus == 0 and len(SEEN) > MOST_SPECIALISATIONS:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
