"""Ten thousand runs of each kind leave nothing behind."""

import gc
import mmap
import threading
from pathlib import Path

import pytest

import unpool
from tests.onnxruntime_api import inside

pytestmark = pytest.mark.slow

STATUS = Path("/proc/self/statm")
if not STATUS.is_file():
    pytest.skip("the system has no /proc that tells what a process takes", allow_module_level=True)

RUNS = 10_000
STRETCHES = 3
GROWTH = 8 << 20
"""Bytes that a process may grow by: less than a kilobyte for each run, such as one array of the smallest model."""


def on_arrays(session, net):
    """Runs on arrays."""
    return lambda: session.run(None, {"x": net.x})


def on_values(session, net):
    """Runs on OrtValues, which are made anew and read."""

    def run():
        (made,) = session.run_with_ort_values(None, {"x": unpool.OrtValue.ortvalue_from_numpy(net.x)})
        return made.numpy()

    return run


def on_new_bindings(session, net):
    """Runs on a binding of their own each, the output left to the run."""

    def run():
        binding = session.io_binding()
        binding.bind_cpu_input("x", net.x)
        binding.bind_output("z")
        session.run_with_iobinding(binding)
        return binding.copy_outputs_to_cpu()

    return run


def on_one_binding(session, net):
    """Runs on one binding, bound anew each time."""
    binding = session.io_binding()

    def run():
        binding.bind_cpu_input("x", net.x)
        binding.bind_output("z")
        session.run_with_iobinding(binding)

    return run


def on_another_thread(session, net):
    """Runs that call back from another thread."""

    def run():
        done = threading.Event()
        session.run_async(None, {"x": net.x}, lambda *_: done.set(), None)
        assert done.wait(60)

    return run


def refused(session, net):
    """Runs that end in an error."""

    def run():
        with pytest.raises(ValueError, match="y"):
            session.run(None, {"y": net.x})

    return run


KINDS = [on_arrays, on_values, on_new_bindings, on_one_binding, on_another_thread, refused]


@pytest.mark.parametrize("class_", [unpool.InferenceSession, inside.InferenceSession], ids=["unpool", "inside"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_runs_leave_nothing_behind(kind, class_, net):
    """Neither the memory of the process nor the number of its objects grows with the number of runs.

    A leak grows in every stretch of runs. What other tests left in the process grows once: a thread of theirs
    that ends, pages that the allocator takes back. So the stretch that grew least is the one that counts.
    """
    run = kind(class_(net.content), net)
    for _ in range(RUNS // 10):
        run()
    for _ in range(STRETCHES):
        memory, objects = grown(run)
        if memory < GROWTH and objects < RUNS // 100:
            return
    pytest.fail(f"each of {STRETCHES} stretches of {RUNS} runs grew; the last by {memory} bytes, {objects} objects")


def grown(run):
    """Bytes and objects that the process grows by in a stretch of runs."""
    memory, objects = taken()
    for _ in range(RUNS):
        run()
    memory_then, objects_then = taken()
    return memory_then - memory, objects_then - objects


def taken():
    """Bytes in memory that are of the process alone, and objects that the garbage collector knows.

    Pages of files do not count: the system takes them away and brings them back as it likes.
    """
    gc.collect()
    resident, shared = map(int, STATUS.read_text().split()[1:3])
    return (resident - shared) * mmap.PAGESIZE, len(gc.get_objects())
