"""The bytes of a plan, in the layout of `unpool/onnxruntime/plan.c`, which `unpool/onnxruntime/plans.py` writes, too.

Both write the same bytes but for names: here the digest of sources and the file of the kernels are left out, and a
kernel is a number instead of its symbol.
"""

from typing import Any, NamedTuple

import numpy as np

from unpool.kernels.cpu.machine.jobs import PARTS_PER_THREAD
from unpool.kernels.cpu.machine.plan import Condition, Kind
from unpool.kernels.cpu.machine.threads import thread_count_of
from unpool.kernels.cpu.vector.registration import jit_inline

ABI = 1
_MAGIC = int.from_bytes(b"UNPOOLPL", "little")
_NUMBER, _TABLE, _HANDLES = -1, -2, 1 << 16  # tags of words
HEAD_BYTES, SYMBOL_BYTES, ALIGNMENT = 248, 64, 64
_COUNTS_AT = 152  # bytes before the counts of the head

(
    TILES, ROLLING, SEPARABLE, DIRECT, DOUBLING, RECOUNT, ACTIVATE, STREAM, CLEAR, CHECK, IN_WINDOWS, SCATTER,
    CHECK_FINITE, CONVERT, COPY_ROWS, ROWS, PHASES, PACK_PHASES, GEMM_OF_MAPS, GEMM_OF_ONE, GEMM, FEW_CHANNELS,
) = range(1, 23)  # fmt: skip
"""Families of kernels. A kernel has the number of its family in the lowest byte, and its constants in the next ones."""

PLAN_MAX_POOL, PLAN_MAX_UNPOOL, PLAN_CONV_TRANSPOSE = 101, 102, 103
"""Families of planners, of one kernel each."""

_AT, _TABLES, _WORDS, _STEPS, _USED, _KERNELS = range(6)  # counters
_MAX_TABLES, _MAX_WORDS, _MAX_STEPS, _MAX_OPERANDS = 128, 1024, 32, 24
(_KIND, _OF_KIND, _BYTES, _RANK, _SLOT, _DIMS) = range(6)  # columns of operands
_STEP = 11  # words of a step
UNUSED = -100  # in place of what follows a step


class Blob(NamedTuple):
    """A plan that is being written. Offsets are in bytes."""

    out: Any  # its words; what lies beyond them is counted, not written
    counters: Any
    tables: Any  # offsets and bytes
    words: Any  # tags and values, of a step
    steps: Any
    operands: Any  # kind, number of this kind, bytes, rank, number in the plan or -1, and shape
    order: Any  # operands by their numbers in the plan
    kernels: Any  # numbers of kernels
    cores: int


@jit_inline
def new_blob(out: Any, cores: int, rank: int) -> Blob:
    """A plan without content."""
    counters = np.zeros(6, np.int64)
    counters[_AT] = HEAD_BYTES
    return Blob(
        out, counters, np.zeros((_MAX_TABLES, 2), np.int64), np.zeros((_MAX_WORDS, 2), np.int64),
        np.zeros((_MAX_STEPS, _STEP), np.int64), np.zeros((_MAX_OPERANDS, _DIMS + rank), np.int64),
        np.zeros(_MAX_OPERANDS, np.int64), np.zeros(_MAX_STEPS, np.int64), cores,
    )  # fmt: skip


@jit_inline
def kernel_number(family, first, second, third, fourth, fifth):
    """The number of a kernel: a family and constants below 128."""
    return family | first << 8 | second << 16 | third << 24 | fourth << 32 | fifth << 40


@jit_inline
def set_operand(blob, number, kind, of_kind, size, shape):
    """Describe an operand whose elements have `size` bytes."""
    operand, count = blob.operands[number], size
    operand[_KIND], operand[_OF_KIND], operand[_RANK], operand[_SLOT] = kind, of_kind, shape.size, -1
    for axis in range(shape.size):
        operand[_DIMS + axis] = shape[axis]
        count *= shape[axis]
    operand[_BYTES] = count


@jit_inline
def operand_bytes(blob, number):
    """Bytes of an operand."""
    return blob.operands[number, _BYTES]


@jit_inline
def use(blob, number):
    """The number of an operand in the plan, which follows the order of first uses."""
    operand, counters = blob.operands[number], blob.counters
    if operand[_SLOT] < 0:
        operand[_SLOT] = counters[_USED]
        blob.order[counters[_USED]] = number
        counters[_USED] += 1
    return operand[_SLOT]


@jit_inline
def _write(blob, at, word):
    if at // 8 < blob.out.size:
        blob.out[at // 8] = word


@jit_inline
def _add_word(blob, word):
    _write(blob, blob.counters[_AT], word)
    blob.counters[_AT] += 8


@jit_inline
def _align(blob, alignment):
    blob.counters[_AT] += -blob.counters[_AT] % alignment


@jit_inline
def _add_table(blob, data, size):
    """The offset of a table of `size` bytes, which several arguments may have."""
    counters, count = blob.counters, blob.counters[_TABLES]
    for number in range(count):
        at, other = blob.tables[number]
        if other == size and at // 8 + data.size <= blob.out.size:
            if np.all(blob.out[at // 8 : at // 8 + data.size] == data):
                return at
    _align(blob, ALIGNMENT)
    at = counters[_AT]
    room = max(0, min(data.size, blob.out.size - at // 8))
    blob.out[at // 8 : at // 8 + room] = data[:room]
    counters[_AT] += size
    if count < _MAX_TABLES:
        blob.tables[count, 0], blob.tables[count, 1] = at, size
        counters[_TABLES] += 1
    return at


@jit_inline
def _add(blob, tag, value):
    """A word of a step."""
    count = blob.counters[_WORDS]
    blob.words[count, 0], blob.words[count, 1] = tag, value
    blob.counters[_WORDS] += 1


@jit_inline
def add_number(blob, value):
    """An argument that is a number."""
    _add(blob, _NUMBER, value)


@jit_inline
def add_handle(blob, operand):
    """An argument that is the handle of an operand."""
    _add(blob, _HANDLES + use(blob, operand), 0)


@jit_inline
def add_view(blob, operand, size, count):
    """An argument that is a whole operand, as a flat array."""
    _start_array(blob, count, size)
    _add(blob, use(blob, operand), 0)
    add_number(blob, count)
    add_number(blob, size)


@jit_inline
def _start_array(blob, count, size):
    """An array without an owner: two words of 0, elements, bytes of one; its address, sizes and steps follow."""
    add_number(blob, 0)
    add_number(blob, 0)
    add_number(blob, count)
    add_number(blob, size)


@jit_inline
def add_array(blob, array):
    """An argument that is an int64 array of the plan."""
    data = np.ascontiguousarray(array).reshape(-1)
    at = _add_table(blob, data, data.size * 8)
    _start_array(blob, data.size, 8)
    _add(blob, _TABLE, at)
    for axis in range(array.ndim):
        add_number(blob, array.shape[axis])
    for axis in range(array.ndim):
        step = 8
        for after in range(axis + 1, array.ndim):
            step *= max(1, array.shape[after])
        add_number(blob, step)


@jit_inline
def add_rows(blob, array):
    """An argument that is an array of records, which are the rows of an array of int64."""
    data, size = np.ascontiguousarray(array).reshape(-1), 8 * array.shape[array.ndim - 1]
    at = _add_table(blob, data, data.size * 8)
    _start_array(blob, data.size * 8 // size, size)
    _add(blob, _TABLE, at)
    for axis in range(array.ndim - 1):
        add_number(blob, array.shape[axis])
    for axis in range(array.ndim - 1):
        step = size
        for after in range(axis + 1, array.ndim - 1):
            step *= max(1, array.shape[after])
        add_number(blob, step)


@jit_inline
def add_places(blob, array, size):
    """An argument that is a flat array of integers of 4 or 8 bytes."""
    words = array
    if size == 4:
        words = np.zeros((array.size + 1) // 2, np.int64)
        for number in range(array.size):
            words[number // 2] |= (array[number] & 0xFFFFFFFF) << (32 * (number % 2))
    at = _add_table(blob, words, array.size * size)
    _start_array(blob, array.size, size)
    _add(blob, _TABLE, at)
    add_number(blob, array.size)
    add_number(blob, size)


@jit_inline
def add_field(record, at, value, size):
    """Write a field of `size` bytes to the words of a record, after `at` bytes; the bytes after it."""
    at += -at % size
    if size == 8:
        record[at // 8] = value
    else:
        record[at // 8] |= (value & ((1 << 8 * size) - 1)) << (at % 8 * 8)
    return at + size


@jit_inline
def add_fields(record, at, values):
    """Write fields of int64."""
    for value in values:
        at = add_field(record, at, value, 8)
    return at


@jit_inline
def add_record(blob, record, size, alignment):
    """An argument that is an array of one record."""
    size += -size % alignment
    at = _add_table(blob, record[: -(-size // 8)], size)
    _start_array(blob, 1, size)
    _add(blob, _TABLE, at)
    add_number(blob, 1)
    add_number(blob, size)


@jit_inline
def add_step(blob, kernel, jobs, work):
    """End a step whose arguments were added; the step after it follows. Its number."""
    threads = thread_count_of(work, blob.cores)
    return add_split_step(blob, kernel, jobs, threads)


@jit_inline
def add_split_step(blob, kernel, jobs, threads):
    """As `add_step`, for a number of threads."""
    return add_parted_step(blob, kernel, jobs, threads, PARTS_PER_THREAD)


@jit_inline
def add_parted_step(blob, kernel, jobs, threads, most):
    """As `add_split_step`, with at most `most` parts for a thread."""
    _align(blob, 8)
    at, counters, count = blob.counters[_AT], blob.counters, blob.counters[_WORDS]
    for number in range(count):
        _add_word(blob, blob.words[number, 0])
        _add_word(blob, blob.words[number, 1])
    counters[_WORDS] = 0
    which, kernels = 0, counters[_KERNELS]
    while which < kernels and blob.kernels[which] != kernel:
        which += 1
    if which == kernels:
        blob.kernels[which] = kernel
        counters[_KERNELS] += 1
    busy = min(jobs, threads)
    parts = 1 if busy <= 1 else busy * min(most, jobs // busy)
    number = counters[_STEPS]
    step = blob.steps[number]
    step[0], step[1], step[2], step[3], step[4] = which, at, count, jobs, parts
    counters[_STEPS] += 1
    set_outcome(blob, number, Condition.ALWAYS, (1, UNUSED, UNUSED))
    step[9], step[10] = 0, -1
    return number


@jit_inline
def set_outcome(blob, number, outcome, then):
    """How a step's results choose one of three that may follow, as `KernelStep.then`."""
    step = blob.steps[number]
    step[5], step[6], step[7], step[8] = outcome, then[0], then[1], then[2]


@jit_inline
def set_range(blob, number, indices, limit):
    """The operand with the indices of an IN_RANGE step, and their limit."""
    blob.steps[number, 9], blob.steps[number, 10] = limit, use(blob, indices)


@jit_inline
def step_count(blob):
    """The number of steps so far."""
    return blob.counters[_STEPS]


@jit_inline
def connect_next(blob, first, end):
    """As `plan.connect`: the next step follows the steps from `first` on that end in this way."""
    for number in range(first, step_count(blob)):
        rest = step_count(blob) - number
        for choice in range(6, 9):
            then = blob.steps[number, choice]
            if then != UNUSED:
                then = 0 if then >= rest else then
                blob.steps[number, choice] = rest if then == end else then


@jit_inline
def finish(blob, request, key, key_count, inputs, outputs, label):
    """Write what follows the steps, and the head; the bytes of the plan."""
    counters, steps = blob.counters, blob.counters[_STEPS]
    used, dims_at, constants = counters[_USED], np.zeros(_MAX_OPERANDS, np.int64), 0
    _align(blob, 8)
    for number in range(used):
        operand = blob.operands[blob.order[number]]
        dims_at[number] = counters[_AT]
        constants += int(operand[_KIND] == Kind.CONSTANT)
        for axis in range(operand[_RANK]):
            _add_word(blob, operand[_DIMS + axis])
    key_at = counters[_AT]
    for number in range(key_count):
        _add_word(blob, request[key + number])
    operands_at = counters[_AT]
    for number in range(used):
        operand = blob.operands[blob.order[number]]
        for field in (_KIND, _OF_KIND, _BYTES, _RANK):
            _add_word(blob, operand[field])
        _add_word(blob, dims_at[number])
    steps_at = counters[_AT]
    for number in range(steps):
        for field in range(_STEP):
            word = blob.steps[number, field]
            if 6 <= field < 9:
                if word == UNUSED:
                    word = -1
                elif word < 0:
                    word -= 1
                else:
                    word = -1 if word == 0 or number + word >= steps else number + word
            _add_word(blob, word)
    kernels_at = counters[_AT]
    for number in range(counters[_KERNELS]):
        _add_word(blob, blob.kernels[number])
        for _ in range(SYMBOL_BYTES // 8 - 1):
            _add_word(blob, 0)
    label_at = counters[_AT]
    for number in range(label.size):
        _write(blob, label_at + 8 * number, label[number])
    counters[_AT] += 8 * label.size
    size = counters[_AT]
    _write(blob, 0, _MAGIC)
    _write(blob, 8, ABI)
    _write(blob, 16, size)
    counts = (
        key_at, key_count, operands_at, used, steps_at, steps, kernels_at, counters[_KERNELS], inputs, outputs,
        constants, label_at,
    )  # fmt: skip
    for number in range(12):
        _write(blob, _COUNTS_AT + 8 * number, counts[number])
    return size


@jit_inline
def label_of(name, version, is_channels_last):
    """Words of the name of an operator, as `Row.label` and a zero byte: `MaxPool-12 (com.ms.internal.nhwc)`."""
    text, count = np.zeros(64, np.int64), 0
    for letter in name:
        text[count], count = letter, count + 1
    if version > 0:
        text[count], count = _DASH, count + 1
        if version >= 10:
            text[count], count = _ZERO + version // 10, count + 1
        text[count], count = _ZERO + version % 10, count + 1
        if is_channels_last:
            for letter in _DOMAIN:
                text[count], count = letter, count + 1
    words = np.zeros(count // 8 + 1, np.int64)
    for number in range(count):
        words[number // 8] |= text[number] << (8 * (number % 8))
    return words


_DASH, _ZERO, _DOMAIN = ord("-"), ord("0"), tuple(b" (com.ms.internal.nhwc)")
