"""Chooses the tests of a run, and compares the kernels that it calls with those that are shipped.

1. `python -m pytest` runs the first tier, which is every test without one of the markers in `GROUPS`. Of a test with
   several parametrizations it takes as many cases as every value needs to occur, of one with `sample(n)` every n-th.
2. `-m slow` runs the second tier: what is marked, and the other cases. `-m NAME` runs another group. An expression that
   names no group adds none.
3. A file or a test that is named on the command line runs as a whole, whatever its markers.
4. `TEST_PART=3/8` keeps an eighth of the tests in the second tier, which is fixed by their names; 0/8 to 7/8 are all.
5. A run without a path takes a worker per core; a run of some path takes one process, unless `-n` says otherwise.
"""

import gc
import os
import re
import signal
from collections import defaultdict
from glob import glob
from importlib.util import find_spec
from zlib import crc32

import pytest

from unpool.kernels.cpu.machine import libraries
from unpool.kernels.cpu.machine.jit import Kernel
from unpool.warmup import compiling_seconds

if not glob("/dev/nvidia[0-9]*"):
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is first imported; nobody has yet

os.environ.setdefault("UNPOOL_MODEL_CACHE", "0")  # tests replace parts of passes; test_model_cache.py switches it on

GROUPS = {"slow", "widths", "peers"}
"""Markers of tests that only run when they are asked for."""

RARE = ("unpool.kernels.cpu.max_pool.rolling.", "unpool.kernels.cpu.conv_transpose.amx.", "unpool.kernels.cpu.planner.")
"""Kernels that are not all shipped: the rolling pool has one for every window, and no library has AMX or planners."""

SLOWEST = (
    "test_widths.py", "test_kernel_cache.py", "test_blocks.py", "test_torch_export_wrapper.py",
    "test_torch_export_sizes.py", "test_leaks.py", "test_torch_alone.py", "test_all_node_tests.py", "test_fuzz.py",
    "test_cluster.py", "test_paths.py", "test_fuse_unpool.py", "test_torch_export.py", "test_torch_ops.py",
    "test_torch_opinfo.py", "test_cli.py", "test_lower.py",
)  # fmt: skip
"""Files that take long; they come first, so that no worker is left alone with one at the end."""

if hasattr(os, "register_at_fork"):  # garbage of earlier tests stays: sessions of onnxruntime would wait for threads
    os.register_at_fork(after_in_child=gc.freeze)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts a job in the background ignores Ctrl-C


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder as the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pytest_configure(config):
    """Note every kernel that is looked up: its name, compile-time constants and the types of its arguments."""
    find = Kernel.entry_point

    def entry_point(kernel, args):
        if kernel.name.startswith("unpool."):
            SEEN.add(f"{kernel.name}({libraries.type_names(args)})")
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
        config.option.loadscopereorder = False  # else files with the most tests come first, and SLOWEST has no effect


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


def pytest_collection_finish(session):
    """In a worker, leave the million objects of packages and of collected tests out of later garbage collections."""
    if hasattr(session.config, "workerinput"):
        import hypothesis  # noqa: F401  # when it is imported, it looks for objects, and frozen ones are not found

        gc.collect()
        gc.freeze()


def mark_slow(items):
    """Mark as slow the groups that take minutes, and the cases of each test that the first tier leaves out."""
    cases = defaultdict(list)
    for item in items:
        if item.get_closest_marker("peers"):
            item.add_marker("slow")
        if not groups_of(item):
            cases[item.nodeid.split("[")[0]].append(item)
    for each in cases.values():
        sample = each[0].get_closest_marker("sample")
        kept = each[:: sample.args[0]] if sample else every_value(each)
        for item in set(each).difference(kept):
            item.add_marker("slow")


def every_value(items):
    """Cases of a test in which every value of every `parametrize` and of every fixture's parameters occurs.

    A case with more new values comes before one with fewer, so there are as many as the longest parametrization has.
    """
    values = [parameters(item) for item in items]
    left = set().union(*values)
    chosen = []
    for count in range(max(map(len, values)), 0, -1):
        for item, own in zip(items, values, strict=True):
            if len(own & left) >= count:
                chosen.append(item)
                left -= own
    return chosen


def parameters(item):
    """The values of a case, each with the names that are parametrized together."""
    params = dict(item.callspec.params) if hasattr(item, "callspec") else {"": None}
    found = set()
    for marker in item.iter_markers("parametrize"):
        names = marker.args[0] if isinstance(marker.args[0], str) else ",".join(marker.args[0])
        found.add((names, *(id(params.pop(name.strip(), None)) for name in names.split(","))))
    return found | {(name, id(value)) for name, value in params.items()}


def groups_of(item):
    """The markers of a test that keep it out of the first tier."""
    return GROUPS & {marker.name for marker in item.iter_markers()}


def is_chosen(item, asked, files):
    """Whether a test belongs to the run: it is in no group, in one that is asked for, or its file is named."""
    groups = groups_of(item)
    if not groups or item.path in files:
        return True
    part, _, parts = os.environ.get("TEST_PART", "").partition("/")
    is_in_part = not part or crc32(item.nodeid.encode()) % int(parts) == int(part)
    return is_in_part and bool(groups & asked)


SEEN = set()
OUTSIDE = set()
SECONDS = [0.0]


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_testnodedown(node, error):
    """Add what a worker had: a kernel in two workers is one specialisation, their seconds are added up."""
    found = getattr(node, "workeroutput", {})
    SEEN.update(found.get("specialisations", ()))
    SECONDS[0] += found.get("seconds", 0.0)


def pytest_terminal_summary(terminalreporter):
    """Print the number of kernels, the time of compiling, and the kernels that the catalogue lacks."""
    terminalreporter.write_line(f"kernels: {len(SEEN)} specialisations, compiled in {SECONDS[0]:.1f} s")
    for each in sorted(OUTSIDE):
        terminalreporter.write_line(f"kernels: {each} is not in unpool/build/catalogue.py")


def pytest_sessionfinish(session, exitstatus):
    """A kernel that the catalogue lacks fails a whole run; a worker hands its own kernels to the main process."""
    SECONDS[0] += compiling_seconds()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput |= {"specialisations": sorted(SEEN), "seconds": SECONDS[0]}
    elif getattr(session.config.option, "numprocesses", None) and find_spec("numba"):
        from unpool.build.catalogue import record_kernels

        known = {each.text for each in record_kernels().values()}
        OUTSIDE.update(each for each in SEEN - known if not each.startswith(RARE))
        if OUTSIDE and exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
