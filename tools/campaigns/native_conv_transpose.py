"""Random transposed convolutions planned by compiled functions, against the plans that Python makes, byte for byte.

    python -m tools.campaigns.native_conv_transpose --count 20000 --seed 1

Calls have any rank up to 4, type, version, layout, window, padding, group, activation and weights, and sizes that reach
every algorithm. Names are left out, as in `native_plans.py`. A call that Python refuses, and one whose plan has kernels
that the compiled function does not plan for, are those that it leaves to Python.
"""

import sys
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from tools.campaigns import native_plans
from unpool import execute
from unpool.build.numbers import number_of
from unpool.dtypes import TYPES
from unpool.errors import UnpoolError
from unpool.execute.plans import Kind, Operand, PlanStep, type_names
from unpool.kernels.cpu.conv_transpose import phases, phases_plan
from unpool.kernels.cpu.conv_transpose.algorithm import convert_steps
from unpool.kernels.cpu.machine import threads
from unpool.kernels.cpu.machine.host import has_amx
from unpool.kernels.cpu.machine.plan import PlanMemory
from unpool.kernels.cpu.planner import conv_transpose_request as asked
from unpool.kernels.cpu.planner import request
from unpool.kernels.cpu.planner.conv_transpose import plan_conv_transpose
from unpool.memory import LARGE
from unpool.onnxruntime import plans
from unpool.onnxruntime.planner import NUMBERS
from unpool.operators import resolve
from unpool.operators.attributes import ACTIVATION_PARAMS, PADDINGS
from unpool.operators.contract import NHWC

CORES = 7
KEY = (1, 2, 3)
LISTS = (
    request.KERNEL, request.STRIDES, request.DILATIONS, request.PADS, request.X, request.INDICES, request.SHAPE,
    asked.OUTPUT_PADDING, request.KEY,
)  # fmt: skip
LARGEST = {1: (1, 20, 900, 20_000), 2: (1, 9, 33, 80), 3: (1, 5, 12), 4: (1, 3, 4)}  # sizes by rank
OFTEN = {
    "kernel_shape": 0.3, "group": 0.3, "strides": 0.9, "dilations": 0.2, "auto_pad": 0.2, "pads": 0.6,
    "output_padding": 0.3, "output_shape": 0.15, "activation": 0.4,
}  # fmt: skip
"""How often attributes are set."""

_FLOATS = ("float16", "bfloat16", "float32", "float64")
RUN, FINITE, NOT_FINITE = range(3)  # weights


class Call(NamedTuple):
    """A ConvTranspose."""

    attributes: dict[str, Any]
    domain: str
    opset: int | None
    compat: str
    is_exact: bool
    x: tuple[int, ...]
    w: tuple[int, ...]
    dtype: np.dtype[Any]
    weights: int
    bias: int  # -1 for none, or RUN or FINITE


def call_of(number: int) -> Call:
    """The call with a number."""
    rng = np.random.default_rng(number)

    def some(values: Any, count: int | None = None) -> Any:
        return rng.choice(values, count).tolist()

    rank, domain = some((1, 2, 2, 2, 3, 4)), NHWC if rng.random() < 0.2 else ""
    kernel = some((1, 2, 2, 3, 3, 4, 5, 7) if rank < 4 else (1, 2, 3), rank)
    kernel = kernel[:1] * rank if rng.random() < 0.5 else kernel
    strides = kernel if rng.random() < 0.2 else some((1, 1, 2, 2, 2, 3, 4, 8), rank)
    strides = strides[:1] * rank if rng.random() < 0.6 else strides
    largest = some(LARGEST[rank])
    sizes = [largest] * rank if rng.random() < 0.3 else rng.integers(1, largest + 1, rank).tolist()
    batch, group = some((0, 1, 1, 1, 1, 2, 3)), some((1, 1, 1, 2, 4))
    maps, channels = some((1, 1, 2, 3, 5, 16, 40)), group * some((1, 1, 2, 3, 8, 17, 64))
    if channels * maps > 200 and rank > 1:
        sizes = [min(size, 24) for size in sizes]
    given = {"kernel_shape": kernel, "group": group, "strides": strides, "dilations": some((1, 2, 3), rank)}
    pads = some((0, 0, 1, 1, 2, 3), 2 * rank)
    given["pads"] = pads[:1] * 2 * rank if rng.random() < 0.6 else pads
    given["auto_pad"], given["output_padding"] = some(tuple(PADDINGS)), some((0, 0, 1, 1, 2), rank)
    large = [max(1, size * stride + rng.integers(-2, 3)) for size, stride in zip(sizes, strides, strict=True)]
    given["output_shape"], given["activation"] = [int(each) for each in large], some(tuple(ACTIVATION_PARAMS))
    attributes = {name: given[name] for name, often in OFTEN.items() if rng.random() < often}
    if group > 1:
        attributes["group"] = group
    if attributes.get("auto_pad", "NOTSET") != "NOTSET" and rng.random() < 0.9:
        attributes.pop("pads", None)
    if not domain:
        attributes.pop("activation", None)
    if "activation" in attributes:
        attributes["activation_params"] = [0.125, 2.5][: len(ACTIVATION_PARAMS[given["activation"]])]
    return Call(
        attributes, domain, some((0, 0, 1, 11, 12, 22)) or None, some(("spec", "spec", "ort")), rng.random() < 0.1,
        (batch, *sizes, channels) if domain else (batch, channels, *sizes), (channels, maps, *kernel),
        TYPES[some(_FLOATS)].dtype, some((RUN, FINITE, FINITE, FINITE, NOT_FINITE)), some((-1, RUN, FINITE)),
    )  # fmt: skip


def request_of(call: Call, part: int = asked.PLAN) -> Any:
    """The words of a request for the plan of a call."""
    words, given = [0] * asked.WORDS, call.attributes
    words[request.VERSION], words[request.OUTPUTS], words[request.INPUTS] = request.ABI, 1, 2 + (call.bias >= 0)
    words[request.CHANNELS_LAST] = words[request.DOMAIN] = int(bool(call.domain))
    words[request.IS_ORT], words[asked.EXACT], words[asked.PART] = (
        int(call.compat == "ort"),
        int(call.is_exact),
        part,
    )
    words[request.CORES], words[request.TYPE], words[request.OPSET] = CORES, NUMBERS[call.dtype], call.opset or 0
    words[request.PADDING] = PADDINGS[given.get("auto_pad", "NOTSET")]
    words[asked.GROUP], words[request.INDEX_TYPE] = given.get("group", 1), NUMBERS[call.dtype]
    words[asked.WEIGHTS], words[asked.BIAS] = call.weights, call.bias
    words[asked.BIAS_SIZE] = call.w[1] * words[asked.GROUP]
    words[request.LARGEST_OUTPUT], words[asked.HAS_AMX] = LARGE, int(has_amx())
    if "activation" in given:
        params = given["activation_params"]
        words[request.ACTIVATION] = list(ACTIVATION_PARAMS).index(given["activation"]) + 1
        words[request.PARAMS] = len(params)
        words[request.PARAM_0], words[request.PARAM_1] = np.float64([*params, 0, 0][:2]).view(np.int64).tolist()
    lists = (*(given.get(name) for name in ("kernel_shape", "strides", "dilations", "pads")), call.x, call.w)
    lists = (*lists, given.get("output_shape"), given.get("output_padding"), KEY)
    for place, values in zip(LISTS, lists, strict=True):
        words[place] = -1 if values is None else len(values)
        words += values or ()
    return np.array(words, np.int64)


def by_compiled(call: Call, part: int = asked.PLAN) -> Any:
    """The words of the plan of the compiled function; None where it leaves the call to Python."""
    asked, room = request_of(call, part), 4096
    while True:
        out = np.zeros(room, np.int64)
        size = plan_conv_transpose(asked, out, 0, 1)
        if size < 0:
            return None
        if size <= 8 * room:
            return out[: size // 8]
        room = size // 8


def by_python(call: Call, part: int = asked.PLAN) -> Any:
    """The words of the plan that Python makes, without names; None where the call is refused."""
    found = plan_of(call, part)
    if found is None:
        return None
    encoded = found[0]
    words = np.frombuffer(encoded.blob, np.int64).copy()
    names_at, symbol = 3, plans.SYMBOL_BYTES // 8
    words[names_at : names_at + 2 * symbol] = 0  # of the digest, and the file
    kernels_at = words[names_at + 2 * symbol + 6] // 8
    for number, step in enumerate(encoded.kernels):
        at = kernels_at + symbol * number
        words[at : at + symbol] = 0
        words[at] = kernel_number(step)
    return words


def kernel_number(step: PlanStep) -> int:
    """The number of a kernel; -1 if it has none."""
    number = number_of(step.kernel.name, type_names(step.sample()))
    return -1 if number is None else number


def plan_of(call: Call, part: int = asked.PLAN) -> Any:
    """The plan of a call, and its algorithms; None where it is refused."""
    try:
        spec = resolve.spec(
            "ConvTranspose", call.attributes, domain=call.domain, opset=call.opset, compat=call.compat
        )._replace(is_exact=call.is_exact)
        w = np.zeros(call.w, call.dtype)
        if call.weights == NOT_FINITE and w.size:
            w.reshape(-1)[0] = np.nan
        b = None if call.bias < 0 else np.zeros(call.w[1] * call.attributes.get("group", 1), call.dtype)
        is_kept = call.weights != RUN
        if is_kept:
            spec, w = execute.bind_weights(spec, w)
        x = np.broadcast_to(np.zeros((), call.dtype), call.x)
        with (
            patch.object(threads, "available_cores", lambda: CORES),
            patch.object(phases_plan, "max_threads", lambda: CORES),
        ):
            prepared = execute.prepare(spec, [x, w] if b is None else [x, w, b], 1)
            outputs = tuple(Operand(Kind.OUTPUT, n, y.shape, y.dtype) for n, y in enumerate(prepared.outputs))
            inputs = _operands(call, x, w, b)
            steps = prepared.steps(inputs, outputs)
            algorithms = _algorithms(prepared, is_kept=is_kept)
            if part == asked.PACK:
                outputs, steps = _packing(prepared, inputs, call, algorithms)
    except UnpoolError:
        return None
    return plans.encode(plans.NodePlan(spec.version.label, len(inputs), outputs, steps), KEY), algorithms


def _operands(call: Call, x: Any, w: Any, b: Any) -> list[Any]:
    is_kept = call.weights != RUN
    found = [
        Operand(Kind.INPUT, 0, x.shape, x.dtype),
        Operand(Kind.CONSTANT if is_kept else Kind.INPUT, 1, w.shape, w.dtype, w if is_kept else None),
    ]
    if b is not None and call.bias == RUN:
        found.append(Operand(Kind.INPUT, 2, b.shape, b.dtype))
    elif b is not None:
        found.append(Operand(Kind.CONSTANT, 2, b.shape, b.dtype, b))
    return found


def _algorithms(prepared: Any, *, is_kept: bool) -> list[str]:
    dispatcher = prepared._dispatcher
    return [] if dispatcher.is_empty else [each.name for each in dispatcher.algorithms(is_cached=is_kept)]


def _packing(prepared: Any, inputs: list[Any], call: Call, algorithms: list[str]) -> Any:
    """The constants as outputs, and the steps that compute them: those of a run that passes its weights."""
    problem, memory, outputs, steps = prepared._dispatcher._problem, PlanMemory(), [], ()
    if not algorithms:
        return (), ()
    w, sums = Operand(Kind.INPUT, 1, call.w, call.dtype), problem.dtype
    if call.bias != RUN:
        outputs.append(Operand(Kind.OUTPUT, 0, (problem.maps * problem.group,), sums))
    if call.weights != RUN:
        number, chosen = len(outputs), algorithms[0]
        if call.weights == NOT_FINITE and chosen != "gemm_1x1":
            chosen = "rows"
        if chosen == "phases":
            packed, step = phases.pack_step(Operand(Kind.INPUT, 1, call.w, sums), problem, memory)
            out, memory = Operand(Kind.OUTPUT, number, packed.shape, sums), PlanMemory()
            wide, before = _widened(w, sums, memory)
            steps = (*before, step._replace(arrays=(wide, out)))
        else:
            out = Operand(Kind.OUTPUT, number, call.w, sums)
            steps = convert_steps(w, out, 1, w.size)
        outputs.append(out)
    if call.bias == FINITE:
        steps = (
            *steps,
            *convert_steps(Operand(Kind.INPUT, 2, outputs[0].shape, call.dtype), outputs[0], 1, outputs[0].size),
        )
    return tuple(outputs), tuple(step.resolve() for step in steps)


def _widened(w: Any, sums: Any, memory: PlanMemory) -> Any:
    """Weights in the type of sums, and the steps that convert them."""
    if w.dtype == sums:
        return w, ()
    wide = memory.scratch(w.shape, sums)
    return wide, convert_steps(w, wide, 1, w.size)


def trial(number: int) -> tuple[str, str]:
    """What happened, and what is wrong; "" if nothing is."""
    call = call_of(number)
    for part in (asked.PLAN, asked.PACK):
        expected, found = by_python(call, part), by_compiled(call, part)
        if expected is None:
            return "refused", "" if found is None else f"{number}: a plan of what is refused: {call}"
        if found is None:
            return "left to Python", "" if _is_left(call) else f"{number}: no plan: {call}"
        if expected.shape != found.shape or not np.array_equal(expected, found):
            return "different", f"{number}: other bytes of {('a run', 'packing')[part]}: {call}"
    return "equal", ""


def _is_left(call: Call) -> bool:
    """True for Winograd's algorithm, AMX, and activations that no bounds describe, or that are steps of their own."""
    encoded, algorithms = plan_of(call)
    if call.attributes.get("activation") not in (None, "Relu", "LeakyRelu", "Clip"):
        return True
    is_amx = call.dtype.name == "bfloat16" and has_amx()
    return is_amx or "winograd" in algorithms or -1 in [kernel_number(step) for step in encoded.kernels]


def main(words: list[str]) -> int:
    """The campaign as a command; its exit code."""
    return native_plans.run(words, "native_conv_transpose", (__doc__ or "").splitlines()[0], trial)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
