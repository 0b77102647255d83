"""Counts what Numba compiles during the run: the number of specialisations is bounded, whatever the ranks."""

import time
from collections import Counter

import pytest
from numba.core import event

MOST_SPECIALISATIONS = 170
"""More than the operators need: kernels that roll have a version for the first NaN and one for the last."""

MOST_SECONDS = 1000
"""Of processor time, with two workers on two virtual cores that share one; pools have a body for NaN of their own."""


class CompileMeter(event.Listener):
    """Distinct kernel specialisations, and the seconds of processor time spent on them.

    What becomes part of a kernel while it is compiled is not counted apart.
    """

    def __init__(self):
        self.seen = set()
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
        kernel = happened.data["dispatcher"].py_func
        if self._depth == 0 and kernel.__module__.startswith("unpool."):
            captured = tuple(str(cell.cell_contents) for cell in kernel.__closure__ or ())
            self.seen.add(f"{kernel.__module__}.{kernel.__qualname__} {captured} {happened.data['args']}")
        if self._depth == 0:
            self.seconds += time.process_time() - self._started


METER = CompileMeter()
event.register("numba:compile", METER)


def pytest_testnodedown(node, error):
    """Add what a worker compiled: a kernel in two workers is one specialisation, their seconds are added up."""
    found = getattr(node, "workeroutput", {})
    METER.seen.update(found.get("specialisations", ()))
    METER.seconds += found.get("seconds", 0.0)


def pytest_terminal_summary(terminalreporter):
    """Say how much was compiled, and what where it was too much; what came from a cache does not count."""
    if len(METER.seen) > MOST_SPECIALISATIONS:
        for kernel, count in Counter(each.split(" ")[0] for each in METER.seen).most_common():
            terminalreporter.write_line(f"{count:4} {kernel}")
    terminalreporter.write_line(
        f"kernels compiled: {len(METER.seen)} specialisations (at most {MOST_SPECIALISATIONS}) "
        f"in {METER.seconds:.1f} s (at most {MOST_SECONDS})"
    )


def pytest_sessionfinish(session, exitstatus):
    """Too many specialisations fail the run even if every test passed; a worker hands its own to the main process."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput |= {"specialisations": sorted(METER.seen), "seconds": METER.seconds}
    elif exitstatus == 0 and (len(METER.seen) > MOST_SPECIALISATIONS or METER.seconds > MOST_SECONDS):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
