"""Random MaxPools and MaxUnpools planned by compiled functions, against the plans that Python makes, byte for byte.

    python -m tools.campaigns.native_plans --count 20000 --seed 1

Calls have any rank up to 4, type, version, layout, window, padding and order of indices, and sizes that reach every
kernel. Both plans are for the same number of cores. Names are left out: the digest of the sources, the file of the
kernels, and their symbols, for which a plan of a compiled function has numbers. A call that Python refuses is one that
the compiled function leaves to it.
"""

import argparse
import itertools
import json
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from unpool import execute
from unpool.build.numbers import number_of
from unpool.dtypes import TYPES
from unpool.errors import UnpoolError
from unpool.execute.plans import Kind, Operand, type_names
from unpool.kernels.cpu.machine import libraries, threads
from unpool.kernels.cpu.planner import request
from unpool.kernels.cpu.planner.max_pool import plan_max_pool
from unpool.kernels.cpu.planner.max_unpool import plan_max_unpool
from unpool.memory import LARGE
from unpool.onnxruntime import plans
from unpool.onnxruntime.planner import NUMBERS
from unpool.operators import resolve
from unpool.operators.attributes import PADDINGS
from unpool.operators.contract import NHWC
from unpool.operators.max_unpool import INDEX_SPACES

CORES = 7
KEY = (1, 2, 3)
LISTS = (request.KERNEL, request.STRIDES, request.DILATIONS, request.PADS, request.X, request.INDICES, request.SHAPE)
LARGEST = {1: (20, 3000, 100_000), 2: (9, 40, 128, 300), 3: (7, 20, 40), 4: (5, 9)}  # sizes by rank


class Call(NamedTuple):
    """A node and its inputs."""

    operator: str
    attributes: dict[str, Any]
    domain: str
    opset: int | None
    compat: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    outputs: int = 1
    index_space: str = "auto"
    indices_shape: tuple[int, ...] = ()  # of MaxUnpool
    output_shape: tuple[int, ...] | None = None


def call_of(number: int) -> Call:
    """The call with a number."""
    rng = np.random.default_rng(number)

    def some(values: Any, count: int | None = None) -> Any:
        return rng.choice(values, count).tolist()

    return unpool_of(rng, some) if number % 3 == 0 else pool_of(rng, some)


def pool_of(rng: np.random.Generator, some: Callable[..., Any]) -> Call:
    """A MaxPool."""
    rank, domain = some((1, 2, 2, 2, 3, 4)), NHWC if rng.random() < 0.3 else ""
    kernel = some((1, 2, 2, 3, 3, 4, 5, 7, 13, 30), rank)
    kernel = kernel[:1] * rank if rng.random() < 0.5 else kernel
    attributes: dict[str, Any] = {"kernel_shape": kernel}
    if rng.random() < 0.9:
        strides = some((1, 1, 2, 2, 3, 4, 9), rank)
        attributes["strides"] = kernel if rng.random() < 0.3 else strides[:1] * rank if rng.random() < 0.7 else strides
    if rng.random() < 0.3:
        attributes["dilations"] = some((1, 2, 3), rank)
    if rng.random() < 0.3:
        attributes["auto_pad"] = some(tuple(PADDINGS))
    elif rng.random() < 0.5:
        pads = some((0, 0, 1, 2, 3), 2 * rank)
        attributes["pads"] = pads[:1] * 2 * rank if rng.random() < 0.5 else pads
    for name in ("ceil_mode", "storage_order"):
        if rng.random() < 0.3:
            attributes[name] = some((0, 1, 1))
    largest = some(LARGEST[rank])
    sizes = [largest] * rank if rng.random() < 0.3 else rng.integers(1, largest + 1, rank).tolist()
    batch, channels = some((0, 1, 1, 1, 2, 3)), some((1, 3, 4, 16, 64, 70))
    return Call(
        "MaxPool", attributes, domain, some((0, 0, 8, 11, 12, 22)) or None, some(("spec", "spec", "ort")),
        (batch, *sizes, channels) if domain else (batch, channels, *sizes),
        TYPES[some(tuple(TYPES))].dtype, some((1, 2)),
    )  # fmt: skip


def unpool_of(rng: np.random.Generator, some: Callable[..., Any]) -> Call:
    """A MaxUnpool, most with the sizes of a pool, and some with an output_shape beside them."""
    rank, domain = some((1, 2, 2, 2, 3, 4)), NHWC if rng.random() < 0.3 else ""
    kernel = some((1, 2, 2, 2, 3, 4), rank)
    kernel = kernel[:1] * rank if rng.random() < 0.6 else kernel
    strides = kernel if rng.random() < 0.6 else some((1, 2, 2, 3), rank)
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides}
    if rng.random() < 0.1:
        del attributes["strides"]
        strides = [1] * rank
    pads = [0] * 2 * rank
    if rng.random() < 0.4:
        attributes["pads"] = pads = some((0, 0, 1, 2), 2 * rank)
    largest = some(LARGEST[rank]) // 2 + 1
    sizes = rng.integers(0 if rng.random() < 0.1 else 1, largest + 1, rank).tolist()
    batch, channels = some((0, 1, 1, 1, 2, 3)), some((1, 1, 3, 16, 70))
    shape, indices_shape = (batch, channels, *sizes), (batch, channels, *sizes)
    if domain:
        shape = (batch, *sizes, channels)
    output_shape = None
    if rng.random() < 0.5:
        grown = [
            (size - 1) * stride + window - begin - end + some((-1, 0, 0, 0, 1, 1, 2) if rng.random() < 0.5 else (0, 1))
            for size, stride, window, begin, end in zip(sizes, strides, kernel, pads[:rank], pads[rank:], strict=True)
        ]
        output_shape = (batch, channels, *grown)
    return Call(
        "MaxUnpool", attributes, domain, some((0, 0, 8, 9, 11, 22)) or None, some(("spec", "spec", "ort")), shape,
        TYPES[some(tuple(TYPES))].dtype, 1, some(("auto", "auto", "output", "inferred")), indices_shape, output_shape,
    )  # fmt: skip


def request_of(call: Call) -> Any:
    """The words of a request for the plan of a call."""
    words, given = [0] * request.WORDS, call.attributes
    words[request.VERSION], words[request.OUTPUTS] = request.ABI, call.outputs
    words[request.INPUTS] = 1 if call.operator == "MaxPool" else 2 if call.output_shape is None else 3
    words[request.INDEX_SPACE], words[request.INDEX_TYPE] = INDEX_SPACES.index(call.index_space), request.INT64
    words[request.CHANNELS_LAST] = words[request.DOMAIN] = int(bool(call.domain))
    words[request.IS_ORT], words[request.MAY_COMPILE] = int(call.compat == "ort"), int(libraries.can_compile())
    words[request.LARGEST_OUTPUT] = LARGE
    words[request.CORES], words[request.TYPE], words[request.OPSET] = CORES, NUMBERS[call.dtype], call.opset or 0
    words[request.PADDING] = PADDINGS[given.get("auto_pad", "NOTSET")]
    words[request.CEIL], words[request.COLUMN_MAJOR] = given.get("ceil_mode", -1), given.get("storage_order", -1)
    lists = (
        *(given.get(name) for name in ("kernel_shape", "strides", "dilations", "pads")), call.shape,
        call.indices_shape or None, call.output_shape,
    )  # fmt: skip
    for place, values in zip((*LISTS, request.KEY), (*lists, KEY), strict=True):
        words[place] = -1 if values is None else len(values)
        words += values or ()
    return np.array(words, np.int64)


def by_compiled(call: Call) -> Any:
    """The words of the plan of the compiled function; None where it leaves the call to Python."""
    asked, room = request_of(call), 512
    planner = plan_max_pool if call.operator == "MaxPool" else plan_max_unpool
    while True:
        out = np.zeros(room, np.int64)
        size = planner(asked, out, 0, 1)
        if size < 0:
            return None
        if size <= 8 * room:
            return out[: size // 8]
        room = size // 8


def by_python(call: Call) -> Any:
    """The words of the plan that Python makes, without names; None where the call is refused."""
    arrays: list[Any] = [np.broadcast_to(np.zeros((), call.dtype), call.shape)]
    if call.operator == "MaxUnpool":
        arrays.append(np.broadcast_to(np.zeros((), np.int64), call.indices_shape))
    if call.output_shape is not None:
        arrays.append(np.array(call.output_shape, np.int64))
    try:
        spec = resolve.spec(
            call.operator, call.attributes, domain=call.domain, opset=call.opset, compat=call.compat,
            index_space=call.index_space,
        )  # fmt: skip
        prepared = execute.prepare(spec, arrays, call.outputs)
    except UnpoolError:
        return None
    operands = [Operand(Kind.INPUT, number, x.shape, x.dtype) for number, x in enumerate(arrays)]
    outputs = tuple(Operand(Kind.OUTPUT, n, y.shape, y.dtype) for n, y in enumerate(prepared.outputs))
    with patch.object(threads, "available_cores", lambda: CORES):
        steps = prepared.steps(operands, outputs)
    assert steps is not None
    encoded = plans.encode(plans.NodePlan(spec.version.label, len(arrays), outputs, steps), KEY)
    words = np.frombuffer(encoded.blob, np.int64).copy()
    names_at, symbol = 3, plans.SYMBOL_BYTES // 8
    words[names_at : names_at + 2 * symbol] = 0  # of the digest, and the file
    kernels_at = words[names_at + 2 * symbol + 6] // 8
    for number, step in enumerate(encoded.kernels):
        at = kernels_at + symbol * number
        words[at : at + symbol] = 0
        number_of_kernel = number_of(step.kernel.name, type_names(step.sample()))
        assert number_of_kernel is not None
        words[at] = number_of_kernel
    return words


def trial(number: int) -> tuple[str, str]:
    """What happened, and what is wrong; "" if nothing is."""
    call = call_of(number)
    expected, found = by_python(call), by_compiled(call)
    if expected is None:
        return "refused", "" if found is None else f"{number}: a plan of what is refused: {call}"
    if found is None:
        return "left to Python", f"{number}: no plan: {call}"
    is_same = expected.shape == found.shape and np.array_equal(expected, found)
    return "equal", "" if is_same else f"{number}: other bytes: {call}"


def main(words: list[str]) -> int:
    """The campaign as a command; its exit code."""
    return run(words, "native_plans", (__doc__ or "").splitlines()[0], trial)


def run(words: list[str], name: str, description: str, trial: Callable[[int], tuple[str, str]]) -> int:
    """Try so many calls, print what is wrong and the counts, and give the exit code."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(words)
    tally, faults = Counter[str](), 0
    for number in itertools.islice(itertools.count(options.seed * 1_000_000), options.count):
        what, wrong = trial(number)
        tally[what] += 1
        faults += bool(wrong)
        if wrong:
            sys.stdout.write(f"{wrong}\n")
    how = json.dumps(dict(sorted(tally.items()))).strip("{}").replace('"', "")
    sys.stdout.write(f"{name}: seed {options.seed}, {options.count} calls, {faults} wrong; {how}\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
