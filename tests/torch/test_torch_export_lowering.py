"""Models in older opsets: forms that mean the same, and refusals where there is none."""

import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser
from onnxscript import ir

import unpool
from unpool.torch.exporting.opset_downgrade import MIN_OPSET, REWRITES, downgrade_opset


def rows(section):
    """Rows of older_opsets.txt: a name and the model, or a name, opset, reason, next opset and model."""
    text = Path(__file__).with_name("older_opsets.txt").read_text(encoding="utf-8")
    return [line.split(" | ") for line in text.partition(f"## {section}\n")[2].partition("\n##")[0].splitlines()]


SAME = dict(rows("same"))
LATER = {"scatter": 11}


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


@pytest.mark.parametrize(("name", "opset", "reason", "possible", "text"), rows("refused"))
def test_refusals_name_the_node_and_the_next_opset(name, opset, reason, possible, text):
    """What has no older form is an error, which says from which opset on the model can be had, and that is so."""
    model = ir.from_proto(model_of(text))
    with pytest.raises(unpool.UnsupportedError, match=reason) as caught:
        downgrade_opset(model, int(opset))
    assert f"opset_version={possible};" in str(caught.value)
    assert downgrade_opset(model, int(possible)).opset_imports[""] == int(possible)


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
    try:
        onnx.defs.get_schema(operator, opset, "")
    except onnx.defs.SchemaError:
        return False
    return True


def test_newer_opsets_are_not_made_here():
    """A model that torch's exporter left below the opset asked for is refused."""
    with pytest.raises(unpool.UnsupportedError, match="where it stays at 18"), warnings.catch_warnings():
        downgrade_opset(ir.from_proto(model_of(SAME["squeeze"])), 99)
