"""Models that compute in float16 or bfloat16 between float32 inputs and outputs, and half-precision models lowered."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import onnx
import pytest

import unpool
from tests.support import models
from unpool.graph.graph import Graph
from unpool.graph.narrow_floats import narrowest_floats
from unpool.graph.shape_inference import infer
from unpool.numerics import BITWISE, ROUNDING, Tolerance
from unpool.operators.semantics import Semantics
from unpool.runtime.compare.compare import compare
from unpool.runtime.lower.lower import lower
from unpool.runtime.measure.bench import bench
from unpool.runtime.measure.timing import Effort
from unpool.runtime.report.report import ReportOptions, report
from unpool.runtime.rewrite.fix import fix
from unpool.runtime.rewrite.upgrade import upgrade
from unpool.runtime.runtimes import runtimes

POOL = models.POOL
HALF = onnx.TensorProto.FLOAT16


def narrowest(text, **constants):
    """The narrowest float type on the way to each output of a graph."""
    graph = Graph.from_model(models.model(text, **constants))
    found = narrowest_floats(graph, infer(graph, Semantics()))
    return {name: found.get(name) for name in graph.output_names}


def half_inside(body, result="float[1, 4, h, w] z", size="32, 32"):
    """A Conv in float16 whose input and output are float32, as converters with keep_io_types write it."""
    return models.model(
        f"""half (float[1, 3, {size}] x) => ({result}) {{
            h = Cast <to = {HALF}> (x)
            c = Conv <pads = [1, 1, 1, 1]> (h, w1)
            {body}
        }}""",
        w1=models.random(4, 3, 3, 3, dtype=np.float16),
        w2=models.random(4, 4, 2, 2, dtype=np.float16),
    )


WITHOUT_TIES = "t = ConvTranspose <strides = [2, 2]> (c, w2) z = Cast <to = 1> (t)"
ROUND_TRIP = f"""
    y, i = MaxPool <{POOL}> (c)
    s = Shape (c)
    u = MaxUnpool <{POOL}> (y, i, s)
    t = ConvTranspose <strides = [2, 2]> (u, w2)
    z = Cast <to = 1> (t)
"""


def test_the_narrowest_type_on_the_way_counts():
    """Every value that depends on an input has the narrowest float type in which it, or a value before it, is."""
    assert narrowest(
        f"""g (float[n] x) => (float[n] a, float[n] b, double[n] d, int64[n] k, float[n] q) {{
            h = Cast <to = {HALF}> (x)
            b16 = Cast <to = 16> (h)
            a = Cast <to = 1> (h)
            b = Cast <to = 1> (b16)
            d = Cast <to = 11> (x)
            k = Cast <to = 7> (x)
            q = Mul (x, x)
        }}"""
    ) == {"a": "float16", "b": "bfloat16", "d": "float64", "k": "", "q": "float32"}


def test_constants_sizes_and_inputs_are_not_rounded():
    """Weights that are stored in float16, the size of a float16 value, and a float16 input are exact."""
    assert narrowest(
        """g (float16[n] h) => (float[n] a, int64[1] s) {
            x = Cast <to = 1> (h)
            w = Cast <to = 1> (w16)
            a = Mul (x, w)
            c = Neg (h)
            s = Shape (c)
        }""",
        w16=np.float16([3]),
    ) == {"a": "float32", "s": None}


def test_a_branch_in_half_precision_counts():
    """The values inside of an If are on the way to what it gives."""
    branches = (f"{name} = graph () => (float[n] {name}_y) {{ {name}_y = Neg (x) }}" for name in ("else_branch",))
    half = f"h = Cast <to = {HALF}> (x) then_y = Cast <to = 1> (h)"
    then = f"then_branch = graph () => (float[n] then_y) {{ {half} }}"
    found = narrowest(f"g (bool b, float[n] x) => (float[n] y) {{ y = If (b) <{then}, {', '.join(branches)}> }}")
    assert found == {"y": "float16"}


def test_a_tolerance_is_that_of_the_narrowest_type():
    """A tolerance by type is that of the narrowest type; a number, and equality of bits, stay."""
    single = np.dtype(np.float32)
    assert ROUNDING.through("float16").limit(single) == ROUNDING.limit(np.dtype(np.float16))
    assert ROUNDING.through("bfloat16").limit(np.dtype(np.float16)) == ROUNDING.limit(np.dtype(ml_dtypes.bfloat16))
    assert ROUNDING.through("float64").limit(single) == ROUNDING.limit(single)
    for tolerance in (BITWISE, Tolerance(0.5)):
        assert tolerance.through("float16") == tolerance


def test_compare_allows_the_rounding_inside():
    """An output in float32 agrees within the rounding of the float16 sums before it, and not beyond."""
    model = half_inside(WITHOUT_TIES)
    done = compare(model)
    (output,) = done.reports[0].outputs
    assert 1e-4 < output.diff.max_rel < 1e-2
    assert not done.differs
    other = replace_weights(model, "w2", lambda weights: weights * np.float16(1.1))
    assert compare(model, other).differs


def test_compare_of_two_models_takes_the_narrower():
    """A float32 model agrees with its copy in float16."""
    half = half_inside(WITHOUT_TIES)
    full = models.model(
        """full (float[1, 3, 32, 32] x) => (float[1, 4, h, w] z) {
            c = Conv <pads = [1, 1, 1, 1]> (x, w1)
            z = ConvTranspose <strides = [2, 2]> (c, w2)
        }""",
        w1=models.random(4, 3, 3, 3, dtype=np.float16).astype(np.float32),
        w2=models.random(4, 4, 2, 2, dtype=np.float16).astype(np.float32),
    )
    assert not compare(full, half).differs
    assert not compare(half, full).differs


def replace_weights(model, name, change):
    """A copy of a model with other numbers in one of its tensors."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    (tensor,) = (tensor for tensor in copy.graph.initializer if tensor.name == name)
    tensor.CopyFrom(onnx.numpy_helper.from_array(change(onnx.numpy_helper.to_array(tensor)), name))
    return copy


@pytest.mark.sample(3)
@pytest.mark.parametrize("target", ["openvino", "any"])
@pytest.mark.parametrize("size", ["32, 32", "31, 33", "p, q"])
def test_half_precision_inside_is_lowered(size, target):
    """The lowered model gives the maxima of the first one in every runtime, whatever its sizes."""
    model = half_inside(ROUND_TRIP, size=size)
    done = lower(model, target)
    assert [check.reason for check in done.checks if "reference" not in check.runtime] == ["", ""]
    assert not {"MaxUnpool", "ScatterElements"} & {node.op_type for node in done.model.graph.node}


@pytest.mark.sample(4)
@pytest.mark.parametrize("target", ["openvino", "any"])
@pytest.mark.parametrize("size", [(8, 8), (9, 11), (7, 5), ("p", "q")])
def test_an_unpooling_in_float16_is_lowered(size, target):
    """After a Conv, which onnxruntime computes in float32, every window keeps its maximum: no other cell is filled."""
    model = models.model(
        f"""half (float16[1, 3, {size[0]}, {size[1]}] x) => (float16[1, 4, h, w] z) {{
            c = Conv <pads = [1, 1, 1, 1]> (x, w1)
            y, i = MaxPool <{POOL}> (c)
            s = Shape (c)
            z = MaxUnpool <{POOL}> (y, i, s)
        }}""",
        w1=models.random(4, 3, 3, 3, dtype=np.float16),
    )
    lowered = lower(model, target).model
    shape = (9, 11) if size == ("p", "q") else size
    x = models.random(1, 3, *shape, dtype=np.float16, seed=3)
    (expected,) = unpool.InferenceSession(model).run(None, {"x": x})
    for runtime in runtimes():
        if runtime.word != "reference":
            (actual,) = runtime.open(lowered)({"x": x})
            assert np.mean((actual != 0) == (expected != 0)) > 0.99, runtime.name


def test_a_maximum_that_rounding_decides_may_be_another():
    """Two sums that are equal in float16 differ in float32, and runtimes that compute in it choose the larger one.

    The choice moves more elements of this small output than the share that may differ otherwise.
    """
    window = "kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]"
    model = models.model(
        f"""half (float16[1, 2, 9, 9] x) => (float16[1, 4, 9, 9] z) {{
            c = Conv <pads = [1, 1, 1, 1]> (x, w1)
            y, i = MaxPool <{window}> (c)
            s = Shape (c)
            u = MaxUnpool <{window}> (y, i, s)
            z = Conv <pads = [2, 2, 2, 2]> (u, w2)
        }}""",
        w1=models.random(4, 2, 3, 3, dtype=np.float16, seed=39),
        w2=models.random(4, 4, 5, 5, dtype=np.float16, seed=39),
    )
    assert [check.reason for check in lower(model, "openvino").checks if "reference" not in check.runtime] == ["", ""]


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_a_pool_that_is_compared_in_float32_says_so(kind):
    """The report names the pool whose type changes; two unpoolings of one pool share it."""
    model = models.model(
        f"""g ({kind}[1, 2, 7, 9] x) => ({kind}[1, 2, h, w] z, {kind}[1, 2, p, q] v) {{
            y, i = MaxPool <{POOL}> (x)
            s = Shape (x)
            z = MaxUnpool <{POOL}> (y, i, s)
            n = Neg (y)
            v = MaxUnpool <{POOL}> (n, i, s)
        }}""",
        opset=22,
        ir=10,
    )
    done = lower(model, "any")
    assert [change.node for change in done.changes] == ["MaxPool->y", "MaxUnpool->z", "MaxUnpool->v"]
    assert sum(node.op_type == "MaxPool" for node in done.model.graph.node) == 1
    assert any(not check.reason for check in done.checks)


SCATTERED = f"""
    y, i = MaxPool <{POOL}> (c)
    flat = Constant <value_ints = [-1]> ()
    column = Constant <value_ints = [-1, 1]> ()
    shape = Shape (c)
    zeros = ConstantOfShape <value = float16[1] {{0}}> (shape)
    cells = Reshape (zeros, flat)
    places = Reshape (i, column)
    updates = Reshape (y, flat)
    filled = ScatterND (cells, places, updates)
    u = Reshape (filled, shape)
    t = ConvTranspose <strides = [2, 2]> (u, w2)
    z = Cast <to = 1> (t)
"""


def test_half_precision_inside_is_fixed():
    """A ScatterND in a model of float16 arithmetic becomes a MaxUnpool, although its output is float32."""
    done = fix(half_inside(SCATTERED))
    assert "MaxUnpool" in {node.op_type for node in done.model.graph.node}
    assert not done.notes


def test_half_precision_inside_is_upgraded():
    """A newer opset gives the same results within the rounding of float16."""
    assert upgrade(half_inside(ROUND_TRIP), 22).model.opset_import[0].version == 22


def test_report_rounds_to_the_type_inside():
    """The elements of a step that differ from float64 are counted after both are rounded to float16."""
    made = report(half_inside(ROUND_TRIP), options=ReportOptions(effort=None))
    steps = [step.float64 for step in made.accuracy if step.runner == "onnxruntime"]
    assert steps
    assert all(diff.count < diff.size / 2 for diff in steps)


@pytest.mark.slow
def test_bench_allows_the_rounding_inside(tmp_path):
    """Outputs in float32 that differ by no more than the rounding of float16 are equal."""
    onnx.save(half_inside(WITHOUT_TIES), tmp_path / "half.onnx")
    times = bench(tmp_path / "half.onnx", {"x": models.random(1, 3, 32, 32)}, Effort(0, 1, 0), threads=1)
    assert times.is_equal
    assert replace(times, difference=0.009).is_equal
    assert not replace(times, difference=0.011).is_equal
