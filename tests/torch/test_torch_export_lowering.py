"""Models in older opsets: forms that mean the same, and refusals where there is none."""

import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser
from onnxscript import ir

import unpool
from unpool.torch.exporting.opset_downgrade import MIN_OPSET, REWRITES, downgrade_opset

SAME = {
    "shape of some axes": "float[2, 3, 5] x) => (int64[2] y) { y = Shape <start = -2> (x) }",
    "shape up to an axis": "float[2, 3, 5] x) => (int64[1] y) { y = Shape <end = 1> (x) }",
    "squeeze": "float[2, 3, 1] x) => (float[2, 3] y) <int64[1] a = {-1}> { y = Squeeze (x, a) }",
    "squeeze of all": "float[1, 3, 1] x) => (float[3] y) { y = Squeeze (x) }",
    "unsqueeze": "float[2, 3] x) => (float[2, 3, 1] y) <int64[1] a = {-1}> { y = Unsqueeze (x, a) }",
    "mean": "float[2, 3, 5] x) => (float[2, 3, 1] y) <int64[1] a = {-1}> { y = ReduceMean (x, a) }",
    "sum of all": "float[2, 3, 5] x) => (float y) { y = ReduceSum <keepdims = 0> (x) }",
    "concatenation": "float[2, 3] x) => (float[2, 6] y) { y = Concat <axis = -1> (x, x) }",
    "gather": "float[2, 3] x) => (float[2, 2] y) <int64[2] i = {2, 0}> { y = Gather <axis = -1> (x, i) }",
    "flatten": "float[2, 3, 5] x) => (float[6, 5] y) { y = Flatten <axis = -1> (x) }",
    "reshape": "float[2, 3] x) => (float[3, 2] y) <int64[2] s = {3, 2}> { y = Reshape <allowzero = 1> (x, s) }",
    "split": "float[2, 6] x) => (float[2, 3] y, float[2, 3] z) { y, z = Split <axis = -1, num_outputs = 2> (x) }",
    "split into parts": "float[6] x) => (float[2] y, float[4] z) <int64[2] p = {2, 4}> { y, z = Split (x, p) }",
    "padding": "float[2, 3] x) => (float[3, 3] y) <int64[4] p = {1, 0, 0, 0}, float v = {7}> { y = Pad (x, p, v) }",
    "padding without a value": "float[2, 3] x) => (float[2, 4] y) <int64[4] p = {0, 1, 0, 0}> { y = Pad (x, p) }",
    "bounds": "float[2, 3] x) => (float[2, 3] y) <float a = {0.75}, float b = {1.5}> { y = Clip (x, a, b) }",
    "upper bound": "float[2, 3] x) => (float[2, 3] y) <float b = {1.5}> { y = Clip (x, , b) }",
    "ints": "float[2, 3] x) => (int64[2] y) { y = Constant <value_ints = [7, 8]> () }",
    "ceil": "float[1, 2, 7, 8] x) => (float[1, 2, 4, 3] y) "
    "{ y = MaxPool <ceil_mode = 1, dilations = [1, 1], kernel_shape = [2, 2], strides = [2, 3]> (x) }",
    "indices in their plane": "float[2, 3, 4, 6] x) => (float[2, 3, 2, 3] v, int64[2, 3, 2, 3] y) <int64 p = {24}> "
    "{ v, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) y = Mod (i, p) }",
    "numbers": "float[2, 3] x) => (int64[2] y) <int64 o = {0}, int64 d = {1}> "
    "{ s = Shape <end = 1> (x) q = Squeeze (s) y = Range (o, q, d) }",
    "normalisation": "float[1, 2, 3] x, float[2] w) => (float[1, 2, 3] y) "
    "{ y = BatchNormalization <training_mode = 0> (x, w, w, w, w) }",
    "float16": "float16[2, 3] x) => (float16[2, 3] y) { t = Relu (x) y = Add (t, x) }",
    "scatter": "float[2, 3] x) => (float[2, 3] y) <int64[1, 3] i = {1, 0, 1}> "
    '{ v = Slice (x, o, e, a) y = ScatterElements <reduction = "none"> (x, i, v) }'.replace(
        "{1, 0, 1}>", "{1, 0, 1}, int64[1] o = {0}, int64[1] e = {1}, int64[1] a = {0}>"
    ),
}
LATER = {"scatter": 11}
REFUSED = {
    "softmax": ("float[2, 3] x) => (float[2, 3] y) { y = Softmax (x) }", 11, "Softmax->y as Softmax-13", 13),
    "dilation": (
        "float[1, 1, 9] x) => (float[1, 1, 5] y) { y = MaxPool <dilations = [4], kernel_shape = [2]> (x) }",
        9,
        "MaxPool->y with dilations",
        10,
    ),
    "bfloat16": ("bfloat16[2] x) => (bfloat16[2] y) { y = Add (x, x) }", 11, "an input of type bfloat16", 13),
    "no operator": ("float[2, 3] x) => (float[2, 3] y) { y = HardSwish (x) }", 13, "HardSwish->y as HardSwish-14", 14),
    "open axes": (
        "float[2, 1] x, int64[1] a) => (float[2] y) { y = Squeeze (x, a) }",
        11,
        "axes that are not const",
        13,
    ),
    "open pads": ("float[2] x, int64[2] p) => (float[n] y) { y = Pad (x, p) }", 9, "not constant", 11),
    "open bound": ("float[2] x, float a) => (float[2] y) { y = Clip (x, a) }", 9, "bounds that are not", 11),
    "padded axes": (
        "float[2, 3] x) => (float[2, 4] y) <int64[2] p = {0, 1}, int64[1] a = {1}> { y = Pad (x, p, , a) }",
        13,
        "Pad->y with axes",
        18,
    ),
    "any Mod": ("int64[4] x, int64 p) => (int64[4] y) { y = Mod (x, p) }", 9, "values that may be negative", 10),
    "any Range": ("int64 x, int64 p) => (int64[n] y) { y = Range (x, p, p) }", 9, "another start than 0", 11),
    "allowzero": (
        "float[0] x, int64[2] s) => (float[0, 2] y) { y = Reshape <allowzero = 1> (x, s) }",
        13,
        "allowzero",
        14,
    ),
    "open rank": (
        "float x, int64[n] s) => (int64[m] y) { t = Expand (x, s) y = Shape <start = 1> (t) }",
        13,
        "rank",
        15,
    ),
    "unequal parts": (
        "float[5] x) => (float[3] y, float[2] z) { y, z = Split <num_outputs = 2> (x) }",
        13,
        "parts that may differ",
        18,
    ),
    "subgraph": (
        "bool x) => (float y) { y = If (x) <then_branch = t () => (float a) { a = Constant <value_float = 1.0> () }, "
        "else_branch = e () => (float b) { b = Constant <value_float = 2.0> () }> }",
        13,
        "whose subgraph cannot be converted",
        18,
    ),
}


def model_of(text):
    """A model of opset 18 from the inner part of ONNX's text form."""
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> g ({text}')


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("opset", [9, 11, 13, 17])
def test_older_forms_mean_the_same(name, opset):
    """The older model gives in onnxruntime what the one of opset 18 gives, under the same names."""
    opset = max(opset, LATER.get(name, 9))
    new = model_of(SAME[name])
    old = ir.to_proto(downgrade_opset(ir.from_proto(new), opset))
    onnx.checker.check_model(old, full_check=True)
    assert [entry.version for entry in old.opset_import] == [opset]
    random = np.random.default_rng(5)
    feeds = {}
    for value in new.graph.input:
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        feeds[value.name] = random.uniform(0.5, 2, shape).astype(kind)
    expected, found = (onnxruntime.InferenceSession(one.SerializeToString()).run(None, feeds) for one in (new, old))
    for wanted, y in zip(expected, found, strict=True):
        np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_node_and_the_next_opset(name):
    """What has no older form is an error, which says from which opset on the model can be had, and that is so."""
    text, opset, reason, possible = REFUSED[name]
    model = ir.from_proto(model_of(text))
    with pytest.raises(unpool.UnsupportedError, match=reason) as caught:
        downgrade_opset(model, opset)
    assert f"opset_version={possible};" in str(caught.value)
    assert downgrade_opset(model, possible).opset_imports[""] == possible


def test_the_model_itself_stays():
    """Converting makes a copy, also where it fails half way."""
    text = "float[2, 3] x) => (float[3] y) <int64[1] a = {0}> { t = ReduceMax <keepdims = 0> (x, a) y = Softmax (t) }"
    model = ir.from_proto(model_of(text))
    before = ir.to_proto(model).SerializeToString()
    with pytest.raises(unpool.UnsupportedError):
        downgrade_opset(model, 9)
    downgrade_opset(model, 13)
    assert ir.to_proto(model).SerializeToString() == before


def test_the_table_of_operators_agrees_with_onnx():
    """An operator exists at the opset that the table gives, or a form replaces it there."""
    missing = {name for name, opset in MIN_OPSET.items() if not exists(name, opset)}
    assert missing <= set(REWRITES)


def exists(operator, opset):
    """True if the opset has the operator."""
    try:
        onnx.defs.get_schema(operator, opset, "")
    except onnx.defs.SchemaError:
        return False
    return True


def test_newer_opsets_are_not_made_here():
    """A model that torch's exporter left below the opset asked for is refused."""
    with pytest.raises(unpool.UnsupportedError, match="where it stays at 18"), warnings.catch_warnings():
        downgrade_opset(ir.from_proto(model_of(SAME["squeeze"])), 99)
