"""Random small models in sessions of onnxruntime with the library, against onnx's ReferenceEvaluator.

    python -m tools.campaigns.onnxruntime_models --count 5000 --seed 1

The evaluator computes the operators by the Python functions. All sums are exact, so every output has to be equal. What
the functions refuse is a failed run with the same sentence. A model that onnxruntime refuses or computes otherwise
without the library, too, is counted and no fault. Models run in processes of their own, and one that ends its process
is a fault, unless onnxruntime alone ends there, too.
"""

import argparse
import logging
import re
import sys
import warnings
from collections import Counter

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

import unpool.onnxruntime
from tools.campaigns.onnxruntime_model_cases import case, every_node
from tools.campaigns.processes import run_models, work
from unpool.errors import UnpoolError
from unpool.graph.graph import to_dense
from unpool.onnx_reference import inline_functions, new_ops

LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")
PROGRAM = ("-m", "tools.campaigns.onnxruntime_models")
OPERATORS = ("MaxPool", "MaxUnpool", "ConvTranspose")
ROUNDING_PASSES = ("reduce_strength", "convert_conv", "fuse_snake")
REFUSAL = re.compile(rf"Status Message: ({'|'.join(OPERATORS)})(-\d+)?: ")


class BatchNormalization(OpRun):
    """As in onnx, whose own class takes an epsilon of 0 for the default, and lacks old versions."""

    op_domain = ""

    def _run(self, x, scale, bias, mean, variance, epsilon=1e-5, **_):
        scale, bias, mean, variance = (v.reshape(-1, *[1] * (x.ndim - 2)) for v in (scale, bias, mean, variance))
        return ((x - mean) / np.sqrt(variance + np.float32(epsilon)) * scale + bias,)


class DequantizeLinear(OpRun):
    """As in onnx, whose own class lacks versions before 19."""

    op_domain = ""

    def _run(self, x, scale, zero, **_):
        return ((x.astype(np.int32) - zero.astype(np.int32)).astype(np.float32) * scale,)


def repeat(x, scales):
    """Nearest neighbours in multiples."""
    for axis, scale in enumerate(scales):
        x = np.repeat(x, int(scale), axis)
    return (x,)


class Upsample(OpRun):
    """As in onnx, which has no class for it."""

    op_domain = ""

    def _run(self, x, *inputs, scales=None, **_):
        return repeat(x, scales if scales is not None else inputs[0])


class Resize(OpRun):
    """As in onnx, whose own class lacks version 10 and, in 11, an empty roi."""

    op_domain = ""

    def _run(self, x, *inputs, **_):
        return repeat(x, inputs[-1])


SUBSTITUTES = [BatchNormalization, DequantizeLinear, Upsample, Resize]


def options_of(settings):
    """The options of a session."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[settings["level"]])
    options.intra_op_num_threads = settings["threads"]
    options.enable_mem_pattern, options.enable_cpu_mem_arena = settings["memory_pattern"], settings["arena"]
    if settings["is_parallel"]:
        options.execution_mode, options.inter_op_num_threads = onnxruntime.ExecutionMode.ORT_PARALLEL, 2
    for name, size in settings["overrides"].items():
        options.add_free_dimension_override_by_name(name, size)
    return options


def outcomes(make, feeds):
    """For each run its outputs or the error; the error of loading for all of them."""
    try:
        run = make()
    except Exception as error:
        return [error] * len(feeds), True
    results = []
    for feed in feeds:
        try:
            results.append(run(feed))
        except Exception as error:
            results.append(error)
    return results, False


def by_evaluator(model, settings):
    """The model in onnx's evaluator, our operators by the functions."""
    opset = next(each.version for each in model.opset_import if not each.domain)
    operators = [*new_ops(opset), *SUBSTITUTES]
    evaluator = ReferenceEvaluator(inline_functions(without_sparse_constants(model)), new_ops=operators)
    return lambda feed: evaluator.run(None, feed)


def without_sparse_constants(model):
    """The model with its sparse Constants written out: onnx's evaluator refuses them."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for node in every_node(changed):
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.name == "sparse_value":
                dense = numpy_helper.from_array(to_dense(attribute.sparse_tensor))
                attribute.CopyFrom(helper.make_attribute("value", dense))
    return changed


def by_session(model, settings):
    """The model in unpool's session inside onnxruntime, without the passes that round otherwise."""
    session = unpool.onnxruntime.InferenceSession(
        model, options_of(settings), exact=settings["exact"], disabled_optimizers=ROUNDING_PASSES
    )
    return lambda feed: with_inferred_shapes(session, feed)


def by_library(model, settings):
    """The model in onnxruntime with the library."""
    return by_onnxruntime(model, settings, has_library=True)


def by_onnxruntime(model, settings, *, has_library):
    """The model in onnxruntime."""
    options = options_of(settings)
    if has_library:
        unpool.onnxruntime.register(options, exact=settings["exact"], opset=settings["opset"])
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return lambda feed: with_inferred_shapes(session, feed)


def with_inferred_shapes(session, feed):
    """The outputs of a run, or an error if onnxruntime has inferred other shapes."""
    outputs = session.run(None, feed)
    for output, y in zip(session.get_outputs(), outputs, strict=True):
        if any(isinstance(size, int) and size != actual for size, actual in zip(output.shape, y.shape, strict=False)):
            raise RuntimeError(f"{output.name} has shape {y.shape}, inferred {output.shape}")
    return outputs


def is_equal(got, expected):
    """True if all outputs are equal, NaN to NaN; an error equals nothing."""
    if isinstance(got, Exception) or isinstance(expected, Exception):
        return False
    return len(got) == len(expected) and all(
        (y.dtype, y.shape) == (right.dtype, right.shape) and np.array_equal(y, right, equal_nan=y.dtype.kind == "f")
        for y, right in zip(got, expected, strict=True)
    )


def first_sentence(error):
    """What an error of the functions says of the call, without the node."""
    return str(error).partition(": ")[2]


def status_of(error):
    """The text of an error of onnxruntime without its code, which depends on the kernel that a failure passes."""
    return str(error).split(" : ", 3)[-1]


def verdict(got, expected, alone):
    """How a run went, in words, and if it is a fault.

    Args:
        got: the outputs with the library, or the error.
        expected: the outputs of the evaluator, or the error.
        alone: a function that gives the outputs of onnxruntime alone, or its error.
    """
    if isinstance(expected, UnpoolError) and not isinstance(got, Exception):
        return f"accepted, expected: {expected}", True
    if isinstance(expected, UnpoolError) and first_sentence(expected) in str(got):
        return "refused", False
    if isinstance(expected, UnpoolError) and REFUSAL.search(str(got)):
        return "refused in another node", False  # nodes that do not depend on each other run in any order
    if isinstance(expected, Exception) and not isinstance(expected, UnpoolError):
        return f"the evaluator cannot: {str(expected)[:80]}", False
    if not isinstance(got, Exception) and is_equal(got, expected):
        return "equal", False
    other = alone()
    if isinstance(got, Exception):
        is_ours = any(f"running {name} " in str(got) for name in OPERATORS)
        if status_of(other) == status_of(got) or not (is_ours or is_equal(other, expected)):
            return "onnxruntime refuses", False
        return f"refused: {got}; expected {str(expected)[:300]}; onnxruntime alone: {str(other)[:300]}", True
    if is_equal(got, other):
        return "equal to onnxruntime alone, not to the evaluator", False
    places = [place for place, (y, right) in enumerate(zip(got, expected, strict=True)) if not is_equal([y], [right])]
    shapes = [(got[place].shape, expected[place].shape) for place in places]
    same = (
        "equal" if is_equal(other, expected) else f"{str(other)[:80]}" if isinstance(other, Exception) else "not equal"
    )
    return f"outputs {places} differ, shapes {shapes}, onnxruntime alone: {same}", True


def trial(seed, make=by_library):
    """How often what happened with a model, and its faults; `make` makes the run that is judged."""
    made = case(seed)
    got, is_unloaded = outcomes(lambda: make(made.model, made.settings), made.feeds)
    expected, _ = outcomes(lambda: by_evaluator(made.model, made.settings), made.feeds)
    tally, faults, others = Counter(), [], []

    def alone(number):
        if not others:
            others.append(outcomes(lambda: by_onnxruntime(made.model, made.settings, has_library=False), made.feeds)[0])
        return others[0][number]

    for number, (result, right) in enumerate(zip(got, expected, strict=True)):
        words, is_fault = verdict(result, right, lambda number=number: alone(number))
        if is_fault:
            shape = list(made.feeds[number]["x"].shape)
            faults.append(f"{'not loaded, ' if is_unloaded else ''}run {number} of {shape}: {words}; {made.settings}")
        else:
            tally[words] += 1
    return tally, faults


def main(words):
    """The campaign as a command; its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--work", action="store_true", help="run models from this seed on in this process")
    parser.add_argument("--alone", action="store_true", help="run this model without the library in this process")
    options = parser.parse_args(words)
    if options.alone:
        made = case(options.seed)
        outcomes(lambda: by_onnxruntime(made.model, made.settings, has_library=False), made.feeds)
        return 0
    if options.work:
        warnings.simplefilter("ignore")
        logging.getLogger("unpool").setLevel(logging.ERROR)
        work(trial, options.seed, options.count)
        return 0
    tally = run_models(PROGRAM, options.seed * 1_000_000, options.count, options.jobs, print)
    print(tally)
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
