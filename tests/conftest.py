"""Counts the kernels of the run, and the time to compile them: both are bounded, whatever the ranks."""

import gc
import os
import signal
import time
from collections import Counter
from glob import glob

import pytest
from numba.core import event
from numba.core.dispatcher import Dispatcher

if not glob("/dev/nvidia[0-9]*"):
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is first imported; nobody has yet

MOST_SPECIALISATIONS = 180

MOST_SECONDS = 500
"""Of processor time, which is more where two workers share a core."""

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


def specialisations():
    """Every kernel of this process, by name, what its function captured and the types that it was called with.

    Kernels from a cache count too. What other kernels call does not: only a kernel takes its first job and its last.
    """
    for each in gc.get_objects():
        if not issubclass(type(each), Dispatcher) or not each.py_func.__module__.startswith("unpool."):
            continue
        kernel = each.py_func
        if kernel.__code__.co_varnames[: kernel.__code__.co_argcount][-2:] == ("first", "stop"):
            captured = tuple(str(cell.cell_contents) for cell in kernel.__closure__ or ())
            for signature in each.overloads:
                yield f"{kernel.__module__}.{kernel.__qualname__} {captured} {signature}"


def pytest_collection_modifyitems(items):
    """The slowest files first, the others as they were."""
    order = {name: number for number, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


METER = CompileMeter()
SEEN = set()
event.register("numba:compile", METER)


def pytest_testnodedown(node, error):
    """Add what a worker had: a kernel in two workers is one specialisation, their seconds are added up."""
    found = getattr(node, "workeroutput", {})
    SEEN.update(found.get("specialisations", ()))
    METER.seconds += found.get("seconds", 0.0)


def pytest_terminal_summary(terminalreporter):
    """Say how many kernels there were, which where they were too many, and what compiling took."""
    if len(SEEN) > MOST_SPECIALISATIONS:
        for kernel, count in Counter(each.split(" ")[0] for each in SEEN).most_common():
            terminalreporter.write_line(f"{count:4} {kernel}")
    terminalreporter.write_line(
        f"kernels: {len(SEEN)} specialisations (at most {MOST_SPECIALISATIONS}) "
        f"in {METER.seconds:.1f} s (at most {MOST_SECONDS})"
    )


def pytest_sessionfinish(session, exitstatus):
    """Too many specialisations fail the run even if every test passed; a worker hands its own to the main process."""
    SEEN.update(specialisations())
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput |= {"specialisations": sorted(SEEN), "seconds": METER.seconds}
    elif exitstatus == 0 and (len(SEEN) > MOST_SPECIALISATIONS or METER.seconds > MOST_SECONDS):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
