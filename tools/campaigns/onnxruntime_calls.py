"""Random calls of the contract in sessions of onnxruntime with the library, against the functions, bit for bit.

    python -m tools.campaigns.onnxruntime_calls --count 20000 --seed 1

Every call is a model of one node, of any version, type and layout, with fixed or open sizes, weights that are constant
or inputs, and optional inputs that are left out in every way. Its session runs inputs of several sizes, also such as do
not fit. What the functions refuse is a failed load or run with the same sentence; an error ends no process. Every call
has a plan, so Python computes none.

With --without-python the planner in Python is never attached, as in a program in C: all plans are those of kernels.
They are for every call but one with an activation, and there is one sentence for all that they refuse.
"""

import argparse
import dataclasses
import itertools
import json
import sys
from collections import Counter
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import unpool
import unpool.onnxruntime
from tests.cases import generated
from tests.cases.draft import chance, pick
from tests.support.library_sessions import register_alone
from tests.support.ort_values import to_numpy, to_value
from tests.support.runners import (
    INPUT_NAMES,
    NEWEST_OPSET,
    bits,
    feeds_of,
    is_explicit_model,
    keywords,
    node_of,
    run_function,
)  # fmt: skip
from unpool.onnxruntime import planner

SIZES = 4
"""Runs of a session after the first one."""

NEW_CONV_TRANSPOSE = 11
"""The version from which on the library runs ConvTranspose if it is not told the opset."""

WITHOUT_PYTHON = "unpool: without Python this node cannot be planned."

LEVELS = (
    onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
)


def model_of(rng, case, constants):
    """A model of the node: its inputs have fixed sizes, open ones or none, and some are constant."""
    node, form = node_of(case), pick(rng, ("fixed", "open", "named", "unknown"), (1, 3, 3, 2))
    count = len(INPUT_NAMES[case.operator])
    if len(node.input) < count and case.inputs[1:] and chance(rng, 0.3):
        node.input.extend([""] * (count - len(node.input)))  # left out with an empty name
    if case.outputs == 1 and case.operator == "MaxPool" and (case.opset or NEWEST_OPSET) >= 8 and chance(rng, 0.2):
        node.output.append("")
    feeds = feeds_of(case)
    declared = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), sizes_of(form, name, x.shape))
        for name, x in feeds.items()
        if name not in constants
    ]
    kinds = (helper.np_dtype_to_tensor_dtype(case.inputs[0].dtype), onnx.TensorProto.INT64)
    outputs = [helper.make_tensor_value_info(n, k, None) for n, k in zip(node.output, kinds, strict=False) if n]
    weights = [numpy_helper.from_array(feeds[name], name) for name in constants]
    imports = [helper.make_opsetid(node.domain, case.opset or NEWEST_OPSET)]
    if node.domain:
        imports.append(helper.make_opsetid("", NEWEST_OPSET))
    graph = helper.make_graph([node], "case", declared, outputs, weights)
    return form, helper.make_model(graph, opset_imports=imports, ir_version=10)


def sizes_of(form, name, shape):
    """The sizes that a model declares for an input."""
    if form == "fixed":
        return shape
    if form == "unknown":
        return None
    return [f"{name}_{axis}" if form == "named" else -1 for axis in range(len(shape))]


def session_of(rng, case, model, opset, is_alone):
    """A session of the model, which the library is told the opset of, or not."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # a refusal is logged, too
    options.intra_op_num_threads = pick(rng, (1, 2))
    options.graph_optimization_level = pick(rng, LEVELS)
    options.enable_mem_pattern = chance(rng, 0.5)
    options.enable_cpu_mem_arena = chance(rng, 0.5)
    if is_alone:
        stated = {} if opset is None else {"opset": opset}
        register_alone(options, compat=case.compat, index_space=case.index_space, **stated)
    else:
        unpool.onnxruntime.register(options, compat=case.compat, index_space=case.index_space, opset=opset)
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def variants(rng, case, form, constants):
    """The case with other values and sizes of those inputs that a run passes; the first one again at the end."""
    yield case
    for _ in range(SIZES):
        yield case if form == "fixed" else vary(rng, case, constants)
    yield case


def vary(rng, case, constants):
    """The case in other sizes, which mostly fit together."""
    x, *others = case.inputs
    if x.ndim < 3:
        return case
    channels = x.ndim - 1 if case.layout == "NHWC" else 1
    grown = [0 if axis == channels and chance(rng, 0.97) else int(rng.integers(-1, 4)) for axis in range(x.ndim)]
    shape = [max(0, size + more) for size, more in zip(x.shape, grown, strict=True)]
    x = np.resize(x, shape) if x.size else np.ones(shape, x.dtype)
    if case.operator == "MaxUnpool":
        logical = [shape[0], shape[channels], *(n for a, n in enumerate(shape) if a not in (0, channels))]
        indices, wanted = others[0], others[1] if len(others) > 1 else None
        if "I" not in constants and indices is not None and chance(rng, 0.95):
            indices = np.resize(indices, logical) if indices.size else np.zeros(logical, indices.dtype)
            if chance(rng, 0.2) and indices.size and indices.dtype == np.int64:
                indices.reshape(-1)[int(rng.integers(indices.size))] = pick(rng, (-1, 2**62, -(2**63), 10**6, 3))
        if "output_shape" not in constants and wanted is not None and wanted.size == len(logical) and wanted.ndim == 1:
            wanted = wanted.copy()
            wanted[:2] = logical[:2]
            wanted[2:] += rng.integers(0, 4, len(logical) - 2).astype(wanted.dtype)
        others = [indices, wanted][: len(others)]
    return dataclasses.replace(case, inputs=(x, *others))


def by_function(case, constants):
    """The function for runs of the case: constant weights are prepared once, and may get another algorithm."""
    if case.operator != "ConvTranspose" or "W" not in constants:
        return run_function
    prepared = []

    def run_prepared(each):
        if not prepared:
            given = keywords(case)
            prepared.append(unpool.prepare_conv_transpose(case.inputs[1], opset=case.opset, **given))
        x, _, b = each.inputs
        return (prepared[0](x, b),)

    return run_prepared


def outcome(call):
    """The outputs of a call, or the sentence of its refusal."""
    try:
        return call(), ""
    except unpool.UnpoolError as error:
        return None, str(error)


def trial(seed, *, is_alone=False):
    """What happens with the case of a seed: how often what, and the faults; `is_alone` is --without-python."""
    case, rng, tally = generated.case(seed), np.random.default_rng((seed, 1)), Counter()
    if not is_explicit_model(case):
        return Counter({"not a model": 1}), []
    names = [name for name, x in feeds_of(case).items() if name != "X"]
    constants = [name for name in names if chance(rng, 0.6 if case.operator == "ConvTranspose" else 0.2)]
    form, model = model_of(rng, case, constants)
    opset = pick(rng, (case.opset, None), (3, 1))
    if opset is None and case.opset is not None:
        if case.operator == "ConvTranspose" and case.opset < NEW_CONV_TRANSPOSE:
            return Counter({"left to onnxruntime": 1}), []
        case = dataclasses.replace(case, opset=None)
    call = by_function(case, constants)
    runs = [(each, *outcome(lambda each=each: call(each))) for each in variants(rng, case, form, constants)]
    try:
        session = session_of(rng, case, model, opset, is_alone)
    except Exception as error:
        if is_left(case, str(error), is_alone):
            return Counter({"left to Python": 1}), []
        if all(expected is None and is_sentence(said, error) for _, expected, said in runs):
            return Counter({"refused at loading": 1}), []
        if is_schema(case, error) and all(expected is None for _, expected, _ in runs):
            return Counter({"refused by onnxruntime": 1}), []
        return tally, [f"{case.name}, {form}, constant {constants}: not loaded: {error}; expected {runs[0][2]!r}"]
    faults = []
    for number, (each, expected, said) in enumerate(runs):
        with by_python() as computed:
            how, why = judge(session, each, constants, expected, said)
        why = why or (f"computed by Python: {how}" if computed else "")
        how, why = ("left to Python", "") if is_left(case, why, is_alone) else (how, why)
        tally[how] += not why
        if why:
            shapes = [None if x is None else x.shape for x in each.inputs]
            faults.append(f"{case.name}, {form}, constant {constants}, run {number} of {shapes}: {why}")
    return tally, faults


def is_left(case, words, is_alone):
    """True if kernels alone do not plan the activation of a case."""
    return is_alone and "activation" in case.attributes and WITHOUT_PYTHON in words


@contextmanager
def by_python():
    """The list of what Python computes: nothing, once a node is planned."""
    computed = []

    def use_pool(pool, original=planner.use_pool):
        computed.append(pool)
        return original(pool)

    with patch.object(planner, "use_pool", use_pool):
        yield computed


def judge(session, case, constants, expected, said):
    """How a run of a session ended, and what is wrong with that."""
    outputs = [each.name for each in session.get_outputs()]
    feeds = {name: to_value(x) for name, x in feeds_of(case).items() if name not in constants}
    try:
        got = [to_numpy(y) for y in session.run_with_ort_values(outputs, feeds)]
    except Exception as error:
        is_right = expected is None and is_sentence(said, error)
        return "refused", "" if is_right else f"refused: {error}; expected {said or 'outputs'}"
    return "equal", unlike(got, expected, said) or unlike_inferred(session, feeds, got)


def is_sentence(said, error):
    """True if the status says what the function says, or that nothing without Python says it."""
    return said in str(error) or WITHOUT_PYTHON in str(error)


def is_schema(case, error):
    """True if onnxruntime itself refuses a model that breaks the rules of a model."""
    return case.operator in str(error) or "Type Error" in str(error)


def unlike(got, expected, said):
    """What is wrong with outputs; "" if nothing is."""
    if expected is None:
        return f"accepted, expected {said!r}"
    for place, (y, right) in enumerate(zip(got, expected, strict=True)):
        if (y.shape, y.dtype) != (right.shape, right.dtype):
            return f"output {place} is {y.dtype}{list(y.shape)}, expected {right.dtype}{list(right.shape)}"
        if bits(y) != bits(right):
            return f"output {place} has other bits in {np.count_nonzero(y != right)} of {y.size} elements"
    return ""


def unlike_inferred(session, feeds, got):
    """What is wrong with the sizes that onnxruntime has inferred; "" if nothing is: one name stands for one size."""
    sizes = {}
    given = [(each, feeds[each.name].shape()) for each in session.get_inputs()]
    for value, shape in (*given, *zip(session.get_outputs(), (y.shape for y in got), strict=True)):
        for inferred, size in zip(value.shape, shape, strict=False):
            expected = inferred if isinstance(inferred, int) else sizes.setdefault(inferred, size)
            if size != expected and inferred is not None:
                return f"{value.name} has shape {shape}, inferred {value.shape}, {sizes}"
    return ""


def campaign(count, seed, operator=None, *, is_alone=False):
    """Run so many cases, those of an operator.

    Returns:
        how often what happened, and the faults.
    """
    tally, faults = Counter(), []
    wanted = (each for each in itertools.count(seed * 1_000_000) if operator in (None, generated.case(each).operator))
    for number in itertools.islice(wanted, count):
        found, wrong = trial(number, is_alone=is_alone)
        tally += found
        faults += wrong
        for line in wrong:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
    return tally, faults


def main(words):
    """The campaign as a command; its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--operator", choices=tuple(INPUT_NAMES), help="run the cases of one operator only")
    parser.add_argument("--without-python", action="store_true", help="plan by kernels alone")
    options = parser.parse_args(words)
    tally, faults = campaign(options.count, options.seed, options.operator, is_alone=options.without_python)
    how = json.dumps(dict(sorted(tally.items()))).strip("{}").replace('"', "")
    sys.stdout.write(f"onnxruntime_calls: seed {options.seed}, {options.count} cases, {len(faults)} wrong; {how}\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
