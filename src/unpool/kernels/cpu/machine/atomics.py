"""Atomic words, pauses, sleep, system calls and a clock: how compiled code of one thread waits for another.

Operations are those of `vector`; addresses are int64 bytes.
"""

import platform
import time

from llvmlite import ir
from numba import types
from numba.core import cgutils

from unpool.kernels.cpu.machine.linux_calls import FUTEX_WAIT, FUTEX_WAKE, LINUX_CALLS
from unpool.kernels.cpu.vector.type import I32, I64, operation, pointer_to

_IS_WINDOWS = platform.system() == "Windows"
_IS_LINUX = platform.system() == "Linux"

_SLEEP_TIME = 1 if _IS_WINDOWS else 30  # of `sleep`: milliseconds on Windows, microseconds elsewhere
_PAUSES = {"x86_64": ("llvm.x86.sse2.pause", ()), "amd64": ("llvm.x86.sse2.pause", ()),
           "aarch64": ("llvm.aarch64.hint", (1,)), "arm64": ("llvm.aarch64.hint", (1,))}  # fmt: skip
_YIELD, _SLEEP = ("SwitchToThread", "Sleep") if _IS_WINDOWS else ("sched_yield", "usleep")


def _call(builder, name, operands):
    kind = ir.FunctionType(ir.VoidType(), [I32] * len(operands))
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    builder.call(function, [I32(each) for each in operands])


@operation
def load_acquire(address):
    """Load a word (acquire): afterwards, all earlier writes of the thread that stored it are visible."""
    return types.int64, lambda builder, address: builder.load_atomic(pointer_to(builder, address, I64), "acquire", 8)


@operation
def store_release(address, value):
    """Store a word (release): a thread that loads it sees all earlier writes of this thread."""
    return types.void, lambda builder, address, value: builder.store_atomic(
        value, pointer_to(builder, address, I64), "release", 8
    )


@operation
def fetch_add(address, amount):
    """Add to a word, and return its old value; a thread that loads the word sees all earlier writes of this thread."""
    return types.int64, lambda builder, address, amount: builder.atomic_rmw(
        "add", pointer_to(builder, address, I64), amount, "acq_rel"
    )


@operation
def compare_exchange(address, old, new):
    """Replace a word by `new` if it is `old`; True if it was replaced."""
    return types.boolean, lambda builder, address, old, new: builder.extract_value(
        builder.cmpxchg(pointer_to(builder, address, I64), old, new, "acq_rel", "acquire"), 1
    )


@operation
def call_part(function, task, first, stop, part):
    """Call a kernel's `run_part`, given its address."""

    def emit(builder, function, *arguments):
        kind = ir.FunctionType(ir.VoidType(), [I64] * 4)
        builder.call(pointer_to(builder, function, kind), arguments)

    return types.void, emit


@operation
def pause():
    """The processor's hint for a loop that waits."""

    def emit(builder):
        name, operands = _PAUSES.get(platform.machine().lower(), ("", ()))
        if name:
            _call(builder, name, operands)

    return types.void, emit


@operation
def yield_core():
    """Give the core to another thread that waits for it."""
    return types.void, lambda builder: _call(builder, _YIELD, ())


@operation
def sleep():
    """Block for about 30 microseconds, on Windows for 1 millisecond."""
    return types.void, lambda builder: _call(builder, _SLEEP, (_SLEEP_TIME,))


def _call_linux(builder, name, *words):
    """The result of a system call with four words; -1, which means failure, on other systems than Linux.

    The system is that of the target: a library may be built for another machine than this one.
    """
    numbers = LINUX_CALLS.get(platform.machine())
    if not _IS_LINUX or numbers is None:
        return I64(-1)
    kind = ir.FunctionType(I64, [I64], var_arg=True)
    function = cgutils.get_or_insert_function(builder.module, kind, "syscall")
    return builder.call(function, [I64(getattr(numbers, name)), *words])


@operation
def futex_wait(address, value, timeout):
    """Sleep while the lower half of the word at an address is `value`, for the seconds and nanoseconds at `timeout`."""
    return types.int64, lambda builder, address, value, timeout: _call_linux(
        builder, "futex", address, I64(FUTEX_WAIT), value, timeout
    )


@operation
def futex_wake(address):
    """Wake the thread that sleeps at the word at an address."""
    return types.int64, lambda builder, address: _call_linux(builder, "futex", address, I64(FUTEX_WAKE), I64(1), I64(0))


@operation
def get_affinity(thread, size, cores):
    """Write the set of cores that a thread may run on as bits of `size` bytes; a result above 0 means success.

    Thread 0 is the calling one. The system leaves bytes beyond its number of cores unchanged.
    """
    return types.int64, lambda builder, thread, size, cores: _call_linux(
        builder, "sched_getaffinity", thread, size, cores, I64(0)
    )


@operation
def set_affinity(thread, size, cores):
    """Restrict a thread, 0 for the calling one, to the cores whose bits are set in `size` bytes; 0 means success."""
    return types.int64, lambda builder, thread, size, cores: _call_linux(
        builder, "sched_setaffinity", thread, size, cores, I64(0)
    )


@operation
def current_core():
    """The number of the core that runs this thread; -1 on other systems than Linux."""

    def emit(builder):
        if not _IS_LINUX:
            return I64(-1)
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(I32, []), "sched_getcpu")
        return builder.sext(builder.call(function, []), I64)

    return types.int64, emit


@operation
def clock():
    """The time in ticks since an unspecified moment."""

    def emit(builder):
        time_of = cgutils.alloca_once(builder, ir.ArrayType(I64, 2))
        place = builder.bitcast(time_of, I64.as_pointer())
        name = "QueryPerformanceCounter" if _IS_WINDOWS else "clock_gettime"
        operands = [place] if _IS_WINDOWS else [I32(time.CLOCK_MONOTONIC), place]
        kind = ir.FunctionType(I32, [operand.type for operand in operands])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, name), operands)
        first = builder.load(place)
        if _IS_WINDOWS:
            return first
        rest = builder.load(builder.gep(place, [I32(1)]))
        return builder.add(builder.mul(first, I64(10**9)), rest)

    return types.int64, emit
