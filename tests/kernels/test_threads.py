"""Results do not depend on the number of threads, on who else calls, or on a fork."""

import _thread
import os
import platform
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import ml_dtypes
import numba
import numpy as np
import pytest

import unpool
from tests.support.guarded import forked
from tests.support.runners import bits
from unpool.kernels.cpu.machine import threads as splitter
from unpool.kernels.cpu.machine import work_queue
from unpool.kernels.cpu.machine.atomics import (
    current_core,
    fetch_add,
    futex_wake,
    get_affinity,
    load_acquire,
    pause,
    set_affinity,
    sleep,
    store_release,
)
from unpool.kernels.cpu.machine.jit import jit
from unpool.kernels.cpu.machine.work_queue import PARKED, new_slot, worker_loop
from unpool.kernels.cpu.tuning import ThreadCosts
from unpool.kernels.cpu.vector import address_of

KINDS = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)
CALLERS = 6


def large(kind: type, *shape: int) -> np.ndarray:
    return np.random.default_rng(7).normal(size=shape).astype(kind)


def pool(kind: type, threads: int | None) -> list[bytes]:
    x = large(kind, 2, 8, 141, 157)
    window = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    y, indices = unpool.max_pool(x, **window, return_indices=True, threads=threads)
    alone = unpool.max_pool(x, **window, threads=threads)
    return [bits(y), bits(indices), bits(alone)]


def one_plane(kind: type, threads: int | None) -> list[bytes]:
    planes = large(kind, 1, 1, 601, 907)
    given = (("NCHW", planes), ("NHWC", planes.reshape(1, 601, 907, 1)))
    window = {"kernel_shape": [3, 3], "return_indices": True, "threads": threads}
    return [bits(each) for layout, x in given for each in unpool.max_pool(x, **window, layout=layout)]


def unpool_with_duplicates(kind: type, threads: int | None) -> list[bytes]:
    """Rivals in one plane, all planes crossing, and a later half that overwrites the end of the earlier one."""
    x = large(kind, 2, 8, 97, 101)
    random = np.random.default_rng(3)
    near = random.integers(0, 2 * 97 * 2 * 101, x.shape) // 5
    crossing = random.integers(0, 500, x.shape)
    planes = near + np.arange(16).reshape(2, 8, 1, 1) * (2 * 97 * 2 * 101)
    early = planes.copy()
    early[1, 0] = planes[0, 7]
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    return [bits(unpool.max_unpool(x, i, **window, threads=threads)) for i in (planes, crossing, early)]


def deconvolve(kind: type, threads: int | None) -> list[bytes]:
    x = large(kind, 2, 8, 41, 43)
    w, b = large(kind, 8, 6, 3, 3), large(kind, 6)
    dense = unpool.conv_transpose(x, w, b, strides=[2, 2], threads=threads)
    grouped = unpool.conv_transpose(x, large(kind, 8, 1, 4, 4), strides=[2, 2], group=8, threads=threads)
    return [bits(dense), bits(grouped)]


WORK = [pool, one_plane, unpool_with_duplicates, deconvolve]
Work = Callable[[type, int | None], list[bytes]]


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: np.dtype(kind).name)
@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
def test_thread_count_changes_no_bit(work: Work, kind: type) -> None:
    """One thread, two, three and the default give the same bytes."""
    alone = work(kind, 1)
    for threads in (2, 3, None):
        assert work(kind, threads) == alone, threads


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
def test_concurrent_callers(work: Work) -> None:
    """Six Python threads that call at once each get what one gets alone."""
    alone = work(np.float32, 1)
    with ThreadPoolExecutor(CALLERS) as callers:
        results = list(callers.map(lambda _: work(np.float32, 2), range(CALLERS)))
    assert all(result == alone for result in results)


LARGE = 1 << 22  # work that is worth any number of threads, and no interruption
LONG = 1 << 40  # work that is done in rounds


@pytest.fixture(autouse=True)
def many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever machine this is, calls get as many threads as they ask for."""
    monkeypatch.setattr(splitter, "available_cores", lambda: 40)
    monkeypatch.setattr(splitter, "max_threads", lambda: 40)


@jit()
def count(seen, first, stop):
    """Add one to the number of times that each job was computed; the first job of the part."""
    for job in range(first, stop):
        seen[job] += 1
    return first


@jit()
def fail(wrong, first, stop):
    if first <= wrong < stop:
        raise ZeroDivisionError("wrong")
    return first


@jit()
def wait_for(go, seen, first, stop):
    """Wait until the first word of an array is not 0."""
    while load_acquire(address_of(go)) == 0:
        pause()
    for job in range(first, stop):
        seen[job] += 1


@jit()
def dawdle(seen, first, stop):
    """Add one to the number of times that each job was computed, after some milliseconds."""
    for job in range(first, stop):
        for _ in range(100):
            sleep()
        seen[job] += 1


def split_jobs(work: int, threads: int | None, jobs: int = 90, parts: int = 1) -> list[int]:
    """The results of a call that computed every job, and none twice."""
    seen = np.zeros(jobs, np.int64)
    results = splitter.split(count, jobs, work, threads, seen, parts=parts)
    assert seen.tolist() == [1] * jobs
    return results


def wait_until(is_reached: Callable[[], bool]) -> None:
    """Half a minute at most."""
    deadline = time.monotonic() + 30
    while not is_reached():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_kernels_really_split() -> None:
    """The sizes of these tests are above the kernels' threshold: more than one part runs."""
    assert split_jobs(2 * 8 * 141 * 157, 2, jobs=16) == [0, 8]


@pytest.mark.parametrize("parts", [1, 2, 7])
@pytest.mark.parametrize("threads", [2, 3, 40])
def test_parts_come_in_order(threads: int, parts: int) -> None:
    """Results are those of the parts in order, however many more threads than cores there are."""
    total = threads * min(parts, 90 // threads)
    edges = [90 * part // total for part in range(total)]
    assert split_jobs(LARGE, threads, parts=parts) == edges


def test_every_job_is_computed_once() -> None:
    """Whoever calls at the same time, with however many threads: no job is left out, and none is done twice."""

    def calls(caller: int) -> bool:
        jobs = 1 + 37 * caller
        seen = np.zeros(jobs, np.int64)
        for number in range(300):
            splitter.split(count, jobs, LARGE, 1 + (number + caller) % 5, seen, parts=1 + number % 3)
        return bool((seen == 300).all())

    with ThreadPoolExecutor(CALLERS) as callers:
        assert all(callers.map(calls, range(CALLERS)))


@pytest.mark.parametrize("wrong", range(0, 12, 2))
def test_exceptions_reach_the_caller(wrong: int) -> None:
    """Whoever computes the part that fails, the caller gets its exception, and the next call works."""
    for _ in range(20):
        with pytest.raises(ZeroDivisionError, match="wrong"):
            splitter.split(fail, 12, LARGE, 3, wrong, parts=4)
        assert splitter.split(fail, 12, LARGE, 3, -1, parts=4) == list(range(12))


def test_no_interrupt_leaves_parts_behind() -> None:
    """Ctrl-C in the middle of a call is raised when all parts have ended: no thread writes to arrays that are gone."""
    go, seen = np.zeros(1, np.int64), np.zeros(8, np.int64)

    def call_until_interrupted() -> None:
        splitter.split(wait_for, 8, LARGE, 2, go, seen)
        time.sleep(10)

    def interrupt() -> None:
        _thread.interrupt_main()
        time.sleep(0.02)
        go[0] = 1

    splitter.split(wait_for, 8, LARGE, 2, np.ones(1, np.int64), seen)
    threading.Timer(0.02, interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        call_until_interrupted()
    assert seen.tolist() == [2] * 8


@pytest.mark.parametrize("threads", [1, 2])
def test_interrupts_end_long_calls(threads: int) -> None:
    """Ctrl-C in a long call ends it before all is computed; nobody writes any more, and the next call is right."""
    seen = np.zeros(1000, np.int64)

    def interrupt() -> None:
        while not seen.any():
            time.sleep(0.001)
        _thread.interrupt_main()

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        splitter.split(dawdle, 1000, LONG, threads, seen)
    done = seen.copy()
    interrupter.join()
    assert 0 < done.sum() < 1000
    time.sleep(0.05)
    assert seen.tolist() == done.tolist()
    split_jobs(LONG, threads)


@pytest.mark.parametrize("jobs", [1, 2, 3, 50, 1001])
@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_rounds_compute_every_job_once(jobs: int, parts: int, threads: int) -> None:
    """However long a call seems to take: no job is left out, none is done twice, and results come in order."""
    firsts = split_jobs(LONG, threads, jobs, parts)
    assert firsts[0] == 0
    assert firsts == sorted(set(firsts))


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
def test_rounds_change_no_bit(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call in many short rounds gives the same bytes."""
    alone = work(np.float32, 1)
    monkeypatch.setattr(splitter, "THREADS", ThreadCosts(round=1 << 12))
    monkeypatch.setattr(splitter, "ROUND_SECONDS", 1e-5)
    monkeypatch.setattr(splitter, "LONG_SECONDS", 1e-5)
    assert work(np.float32, 1) == alone
    assert work(np.float32, 2) == alone


def fresh(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Workers as in a process that has just started, and how many of them live."""
    monkeypatch.setattr(splitter, "_workers", workers := splitter._Workers())
    return lambda: sum(each._thread is not None for each in workers._all)


def test_threads_are_bounded_by_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller who asks for more threads than there are cores gets as many as there are cores."""
    living = fresh(monkeypatch)
    monkeypatch.setattr(splitter, "available_cores", lambda: 3)
    monkeypatch.setattr(splitter, "max_threads", lambda: 3)
    for threads in (64, None):
        split_jobs(LARGE, threads)
        assert living() == 2


def test_idle_threads_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that nobody has wanted for long end, and come back for the next call."""
    living = fresh(monkeypatch)
    monkeypatch.setattr(splitter, "IDLE_SECONDS", 0.02)
    monkeypatch.setattr(work_queue, "SLEEP", min(work_queue.SLEEP, 0.01))
    for _ in range(3):
        split_jobs(LARGE, 3)
        wait_until(lambda: not living())


@pytest.mark.parametrize("sleep", sorted({0.0, min(work_queue.SLEEP, 1e-4)}))
def test_calls_while_threads_end_and_begin(sleep: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that ends at the moment when it is wanted: every job is computed, and none twice."""
    fresh(monkeypatch)
    monkeypatch.setattr(work_queue, "SLEEP", sleep)
    monkeypatch.setattr(splitter, "IDLE_SECONDS", 1e-5)
    seen = np.zeros(90, np.int64)
    for number in range(300):
        splitter.split(count, 90, LARGE, 2 + number % 3, seen)
        time.sleep(0.0003 * (number % 4))
    assert seen.tolist() == [300] * 90


def test_no_threads_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system gives no more threads, callers compute everything."""
    living = fresh(monkeypatch)

    def refuse(target: Callable[[], None], name: str) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(splitter.native_threads, "start_thread", refuse)
    for _ in range(2):
        split_jobs(LARGE, 3)
    assert living() == 0


def test_a_part_takes_as_long_as_it_likes() -> None:
    """A caller waits for a part that a worker has begun, far longer than it watches."""
    go, seen = np.zeros(1, np.int64), np.zeros(8, np.int64)
    threading.Timer(0.1, lambda: go.fill(1)).start()
    splitter.split(wait_for, 8, LARGE, 2, go, seen)
    assert seen.tolist() == [1] * 8


def test_arguments_are_let_go() -> None:
    """After a call no thread holds on to its arrays."""
    for _ in range(20):
        values = np.zeros(3, np.int64)
        before = sys.getrefcount(values)
        splitter.split(count, 3, LARGE, 3, values)
        assert sys.getrefcount(values) == before


def test_a_thread_watches_by_the_clock() -> None:
    """It stays for as long as it is told, however slow its looks are, and says then that it has left."""
    slot = new_slot()
    for seconds in (0.0, 0.001, 0.05):
        start = time.monotonic()
        worker_loop(slot, 1, seconds)
        assert time.monotonic() - start >= seconds
        assert slot[0] == PARKED


def test_idle_threads_use_no_processor() -> None:
    """Threads that wait for work stop watching for it within a few milliseconds."""
    pool(np.float32, 2)
    time.sleep(0.02)
    start = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - start < 0.03


@pytest.mark.parametrize(
    "ending",
    ["", "os._exit(0)", "sys.exit(0)", "threading.Thread(target=work).start()",
     "threading.Thread(target=work, daemon=True).start(); time.sleep(0.01)"],
)  # fmt: skip
def test_interpreter_ends_while_threads_watch(ending: str) -> None:
    """A process that ends just after a call, or in the middle of one, ends with status 0 and says nothing."""
    ends_in_silence(
        "import os, sys, threading, time, numpy as np, unpool\n"
        "x = np.ones((4, 16, 128, 128), np.float32)\n"
        "def work():\n"
        "    for _ in range(50): unpool.max_pool(x, kernel_shape=[2, 2], strides=[2, 2], threads=3)\n"
        f"work()\n{ending}\n"
    )


def ends_in_silence(code: str) -> None:
    """A process of its own ends with status 0."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


GREENLETS = """
import _thread, queue, threading
started = []
def replace():
    real = _thread.get_ident
    def start(*args, **kwargs):
        started.append(args)
        raise RuntimeError("a greenlet")
    for module in (_thread, threading):
        for name in ("start_new_thread", "_start_new_thread", "start_joinable_thread", "_start_joinable_thread"):
            if hasattr(module, name):
                setattr(module, name, start)
        module.get_ident = lambda: real() if real() == threading.main_thread().ident else 0
    queue.SimpleQueue = None
def call():
    import numpy as np, unpool
    x = np.ones((4, 16, 128, 128), np.float32)
    for _ in range(50):
        unpool.max_pool(x, kernel_shape=[2, 2], strides=[2, 2], threads=2)
"""


@pytest.mark.parametrize("before", ["", "import unpool", "call()"])
def test_workers_are_no_greenlets(before: str) -> None:
    """Whenever gevent or eventlet replace Python's threads, workers are the system's, and end with the interpreter."""
    ends_in_silence(
        f"{GREENLETS}\n{before}\nreplace()\ncall()\n"
        "from unpool.kernels.cpu.machine.threads import _workers\n"
        "assert [worker._thread is not None for worker in _workers._all] == [True]\n"
        "assert started == []\n"
    )


if hasattr(os, "fork"):

    @pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
    def test_works_in_a_forked_child() -> None:
        """A child forked after the parent's threads have worked computes the same with threads of its own."""
        expected = {work.__name__: work(np.float32, 2) for work in WORK}
        assert forked(lambda: all(work(np.float32, 2) == expected[work.__name__] for work in WORK)) == 0
        assert all(work(np.float32, 2) == expected[work.__name__] for work in WORK)


@pytest.mark.parametrize("threads", [0, -1, 2.0, "2", True])
def test_wrong_threads_are_refused(threads: object) -> None:
    """Threads is None or a positive int."""
    x = np.ones((1, 1, 2), np.float32)
    for operator, call in {
        "MaxPool": partial(unpool.max_pool, x, kernel_shape=[1]),
        "MaxUnpool": partial(unpool.max_unpool, x, np.zeros((1, 1, 2), np.int64), kernel_shape=[1]),
        "ConvTranspose": partial(unpool.conv_transpose, x, x),
    }.items():
        with pytest.raises(unpool.UnpoolError, match=rf"^{operator}: threads .*, got "):
            call(threads=threads)


@jit()
def note_cores(cores, go, first, stop):
    """A job waits until all have begun, and notes the core that it runs on."""
    for job in range(first, stop):
        store_release(cores + 8 * job, current_core())
        fetch_add(go, 1)
        while load_acquire(go) < 2:
            pause()
    return first


needs_two_cores = pytest.mark.skipif(
    work_queue.SLEEP == 0 or len(os.sched_getaffinity(0)) < 2, reason="needs two cores of Linux"
)


@pytest.fixture
def sleeper(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """The number for Linux of a worker's thread, once the worker sleeps; all threads get their cores back."""
    fresh(monkeypatch)
    every = os.sched_getaffinity(0)
    split_jobs(LARGE, 2)
    (worker,) = splitter._workers._all

    def number() -> int:
        wait_until(lambda: worker.slot[0] == work_queue.ASLEEP)
        wait_until(lambda: worker.slot[work_queue._PLACING // 8] == work_queue.ANYWHERE)  # it has its cores back
        return int(worker.slot[work_queue._THREAD // 8])

    yield number
    os.sched_setaffinity(0, every)
    splitter._workers.stop()


@needs_two_cores
def test_a_worker_wakes_on_another_core(sleeper: Callable[[], int]) -> None:
    """It is woken where its caller is not, and may run on any core afterwards."""
    every = os.sched_getaffinity(0)
    cores, go = np.full(2, -1, np.int64), np.zeros(1, np.int64)
    for core in (*every, *every):
        os.sched_setaffinity(0, {core})
        sleeper()
        go[0] = 0
        splitter.split(note_cores, 2, LARGE, 2, cores.ctypes.data, go.ctypes.data)
        assert sorted(cores.tolist()) != [core, core]
        assert core in cores
        assert os.sched_getaffinity(sleeper()) == every


@needs_two_cores
def test_a_worker_stays_on_the_cores_that_it_is_given(sleeper: Callable[[], int]) -> None:
    """Cores that somebody takes from a sleeping worker, or gives back to it, are its cores from then on."""
    every = os.sched_getaffinity(0)
    for cores in ({min(every)}, {max(every)}, every, {min(every)}):
        os.sched_setaffinity(sleeper(), cores)
        for _ in range(5):
            split_jobs(LARGE, 2)
            assert os.sched_getaffinity(sleeper()) == cores


@needs_two_cores
def test_a_worker_that_was_placed_late_gets_its_core_back() -> None:
    """A worker that began before its caller kept it off a core may run there again while it sleeps."""
    every = os.sched_getaffinity(0)
    others = every - {min(every)}
    slot = new_slot()
    masks = slot.view(np.uint64)
    for place, cores in ((work_queue._CORES, every), (work_queue._OTHER_CORES, others)):
        for core in cores:
            masks[place // 8 + core // 64] |= np.uint64(1 << core % 64)
    slot[work_queue._PLACING // 8] = work_queue.ELSEWHERE

    def work() -> None:
        os.sched_setaffinity(0, others)
        worker_loop(slot, 1, 0.0, work_queue.SLEEP)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        wait_until(lambda: slot[0] == work_queue.ASLEEP)
        wait_until(lambda: os.sched_getaffinity(worker.native_id) == every)
        assert slot[0] == work_queue.ASLEEP
    finally:
        while worker.is_alive():
            work_queue.end_worker(slot)
            worker.join(0.01)


@pytest.mark.parametrize(
    ("machine", "numbers"), [("x86_64", {202, 203, 204}), ("aarch64", {98, 122, 123}), ("riscv64", set())]
)
def test_a_library_has_the_system_calls_of_its_machine(
    machine: str, numbers: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers of system calls are those of the machine that a library is built for, not of the one that builds it."""
    monkeypatch.setattr(platform, "machine", lambda: machine)

    def call(address: int) -> int:
        return futex_wake(address) + set_affinity(0, 8, address) + get_affinity(0, 8, address)

    (code,) = numba.njit((numba.int64,), cache=False)(call).inspect_llvm().values()
    assert set(map(int, re.findall(r"@syscall\(i64 (?:noundef )?(\d+)", code))) == numbers


def test_a_worker_sleeps_and_parks(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its polls it sleeps in compiled code where it can, then waits in Python, and takes work in each state."""
    fresh(monkeypatch)
    for asleep in {0.0, min(work_queue.SLEEP, 0.02)}:
        monkeypatch.setattr(work_queue, "SLEEP", asleep)
        for idle in (0.0, 0.001, 0.03, 0.0):
            time.sleep(idle)
            split_jobs(LARGE, 2)
        (worker,) = splitter._workers._all
        wait_until(lambda worker=worker: worker.is_parked)
        assert worker.slot[0] == work_queue.PARKED
    splitter._workers.stop()
    assert worker._thread is not None
    assert not worker._thread.locked()
