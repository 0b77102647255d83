"""Inferred shapes: right where onnx's are not, silent where a size is unknown, never in contradiction to a run."""

from dataclasses import replace
from functools import partial

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import unpool
from tests.cases import generated as generate
from tests.cases.contract import CASES
from tests.support import models
from tests.support.runners import NHWC_DOMAIN, feeds_of, is_model, model_of
from unpool.graph import shapes
from unpool.graph.graph import Graph, lift_constants
from unpool.graph.shape_inference import infer
from unpool.graph.shapes import output_dims
from unpool.operators import resolve
from unpool.operators.semantics import Semantics

SEEDS = range(600)
SESSION_SEEDS = range(700)


def spec_of(case):
    domain = NHWC_DOMAIN if case.layout == "NHWC" else ""
    return resolve.spec(
        case.operator,
        case.attributes,
        domain=domain,
        opset=case.opset,
        compat=case.compat,
        index_space=case.index_space,
    )


def dims_of(case, hide=lambda size, axis: size):
    """Dims of all inputs, sizes hidden as told, and the value of output_shape."""
    known = [None if x is None else tuple(map(hide, x.shape, range(x.ndim))) for x in case.inputs]
    asks = case.operator == "MaxUnpool" and len(case.inputs) > 2 and case.inputs[2] is not None
    return known, (tuple(case.inputs[2].tolist()) if asks else None)


def valid(seeds):
    """The cases that the oracle accepts, each with its output shapes; flags that are 0 are left out, as in old rows."""
    for seed in seeds:
        case, outputs = generate.judged(seed)
        if outputs is not None:
            given = {name: value for name, value in case.attributes.items() if value != 0}
            yield seed, replace(case, attributes=given), [one.shape for one in outputs]


def contradicts(dims, shape, names):
    """Whether dims say something else than a shape, names standing for the sizes that they have."""
    if dims is None:
        return False
    said = [None if str(dim).startswith("unpool_size_") else names.get(dim, dim) for dim in dims]
    return len(said) != len(shape) or any(one not in (None, size) for one, size in zip(said, shape, strict=True))


def test_known_sizes_give_the_real_shape():
    """With every input size known, every output size is inferred, and it is what the operator makes.

    So it is in the examples of the contract, of which onnx's own inference gets many wrong.
    """
    examples = [case for case in CASES if case.expected is not None]
    checked = 0
    for _, case, made in [*valid(SEEDS), *((0, case, [y.shape for y in case.expected]) for case in examples)]:
        found = output_dims(spec_of(case), *dims_of(case))
        assert [*found[: len(made)]] == made, case.name
        checked += 1
    assert checked > 350 + len(examples)


def hidden(rng, names, size, axis):
    """The size, or None, or a new name for it."""
    how = rng.integers(3)
    if how < 2:
        return (size, None)[how]
    names[f"s{len(names)}"] = size
    return f"s{len(names) - 1}"


def test_unknown_sizes_are_never_wrong():
    """With some sizes hidden behind names or nothing at all, what is still inferred agrees with the operator."""
    told = 0
    for seed, case, made in valid(SEEDS):
        for turn in range(4):
            rng = np.random.default_rng((seed, turn))
            names = {}
            known, asked = dims_of(case, partial(hidden, rng, names))
            if asked is not None and rng.random() < 0.5:
                asked = ()
            known = [None if rng.random() < 0.1 else one for one in known]
            for dims, shape in zip(output_dims(spec_of(case), known, asked), made, strict=False):
                assert not contradicts(dims, shape, names), (case.name, known, asked, dims, shape)
                told += sum(dim is not None for dim in dims or ())
    assert told > 2000


def with_constants(case):
    """The model of a case with W and output_shape as constants, and what is left to feed."""
    model, feed = model_of(case), feeds_of(case)
    for name in {"W", "output_shape"} & feed.keys():
        model.graph.initializer.append(numpy_helper.from_array(feed.pop(name), name))
    kept = [value for value in model.graph.input if value.name in feed]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return model, feed


def open_sizes(model, rng):
    """Give some sizes of the model's inputs a name instead; the sizes by name."""
    names = {}
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if rng.random() < 0.4:
                names[f"n{len(names)}"] = dim.dim_value
                dim.dim_param = f"n{len(names) - 1}"
    return names


@pytest.mark.sample(4)
@pytest.mark.parametrize("part", range(4))
def test_sessions_state_the_shapes_that_they_return(part):
    """get_outputs of a model with fixed sizes is what run returns; with named sizes it does not contradict it.

    An operator library sees no values, so an `output_shape` is not stated. Nor are sizes of 0, and under compat="ort".
    """
    checked = 0
    for seed, case, _ in valid(SESSION_SEEDS[part::4]):
        if not is_model(case):
            continue
        options = {"compat": case.compat, "index_space": case.index_space}
        model, feed = with_constants(case)
        fixed = unpool.InferenceSession(model.SerializeToString(), **options)
        made = [list(one.shape) for one in fixed.run(None, feed)]
        stated = [info.shape for info in fixed.get_outputs()]
        is_given = case.operator == "MaxUnpool" and len(case.inputs) == 3
        if case.compat == "ort" or is_given or any(0 in shape for shape in made):
            assert not any(contradicts(each, shape, {}) for each, shape in zip(stated, made, strict=True)), case.name
        else:
            assert stated == made, case.name
        names = open_sizes(model, np.random.default_rng(seed))
        open_ended = unpool.InferenceSession(model.SerializeToString(), **options)
        for info, shape in zip(open_ended.get_outputs(), made, strict=True):
            assert not contradicts(info.shape, shape, names), case.name
        checked += 1
    assert checked > 75


def test_named_sizes_stay_where_nothing_changes():
    """A name survives N, C and every axis that keeps its size; a known axis beside an unknown one is still resized."""
    pool = resolve.spec(
        "MaxPool", {"kernel_shape": [3, 3, 2], "strides": [1, 2, 2], "pads": [1, 1, 0, 1, 1, 0]}, opset=22
    )
    assert output_dims(pool, [("n", "c", "h", "w", 9)])[0] == ("n", "c", "h", None, 4)
    same = resolve.spec("MaxPool", {"kernel_shape": [4, 4], "auto_pad": "SAME_LOWER"}, opset=22)
    assert output_dims(same, [("n", 2, "h", "w")])[0] == ("n", 2, "h", "w")
    grow = resolve.spec("ConvTranspose", {"strides": [1, 2], "pads": [1, 0, 1, 0], "group": 2}, opset=22)
    assert output_dims(grow, [("n", 4, "h", 5), (4, 3, 3, 2)])[0] == ("n", 6, "h", 10)
    alone = resolve.spec("MaxUnpool", {"kernel_shape": [1]}, opset=22)
    assert output_dims(alone, [(None, "c", "w"), ("n", 3, None)])[0] == ("n", 3, "w")


def types_of(model, **semantics):
    return {
        name: shapes.dims(one)
        for name, one in infer(lift_constants(Graph.from_model(model)), Semantics(**semantics)).types.items()
    }


def test_onnx_sees_our_shapes():
    """Sizes behind several of our nodes are known, although onnx alone loses or mistakes them."""
    model = models.model(
        """chain (float[n, 2, 7, w] x) => (float[n, b, c, d] y) {
            p = MaxPool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1> (x)
            r = Relu (p)
            t = ConvTranspose <auto_pad = "SAME_UPPER", strides = [3, 1]> (r, w1)
            y = Concat <axis = 1> (t, t)
        }""",
        w1=models.random(2, 5, 1, 3),
    )
    assert types_of(model)["y"] == ("n", 10, 12, None)
    assert unpool.InferenceSession(model).get_outputs()[0].shape == ["n", 10, 12, "d"]


def test_output_shape_from_shape_nodes():
    """MaxUnpool's third input is followed through Constant, Shape and Concat."""
    model = models.model(
        f"""unpooled (float[n, 2, h, w] x) => (float[a, b, c, d] y) {{
            p, i = MaxPool <{models.POOL}> (x)
            outer = Shape <end = 2> (p)
            high = Shape <start = 2, end = 3> (x)
            wide = Constant <value_ints = [9]> ()
            whole = Concat <axis = 0> (outer, high, wide)
            y = MaxUnpool <{models.POOL}> (p, i, whole)
        }}"""
    )
    assert types_of(model)["y"] == ("n", 2, "h", 9)


def test_shapes_inside_bodies():
    """Our nodes in a branch are inferred from the values around it, and the branches' common sizes reach the graph."""
    model = models.conditional()
    ours = infer(lift_constants(Graph.from_model(model)), Semantics()).resolved
    assert [one.inputs[0] for one in ours] == [(1, 2, 6, 6), (1, 2, 6, 6)]
    assert types_of(model)["y"] == (1, 2, None, None)


def test_a_name_stands_for_one_value_per_body():
    """Two branches may use one name: what is known of it in the first is not taken for the second."""
    grow = f"MaxUnpool <{models.POOL}> (p, i, k)"
    model = models.model(
        f"""branched (bool c, float[1, 1, 4, 4] x, int64[4] s) => (float[a, b, c1, d] y) {{
            p, i = MaxPool <{models.POOL}> (x)
            y = If (c) <
                then_branch = one () => (float[a, b, e, f] u)
                    {{ k = Constant <value_ints = [1, 1, 5, 6]> () u = {grow} }},
                else_branch = two () => (float[a, b, e, f] v) {{ k = Identity (s) v = {grow} }}
            >
        }}"""
    )
    assert types_of(model)["y"] == (1, 1, None, None)


def test_what_fails_when_it_runs_is_not_inferred():
    """Sizes that make a node fail give no shape; the session still loads and the run says what is wrong."""
    model = models.plain_pools("2, 2", "kernel_shape = [7, 1]")
    assert types_of(model)["p"] == (1, 2, None, 2)
    with pytest.raises(Exception, match="needs room for a window of 7"):
        unpool.InferenceSession(model, exact=True).run(None, {"x": models.random(1, 2, 2, 2)})


def test_a_deep_model_is_inferred_once(monkeypatch):
    """Of 201 nodes, which pass through our operators 50 times, onnx infers each of the others once."""
    lines, value = [], "x"
    for level in range(50):
        lines.append(f"p{level} = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> ({value})")
        lines.append(f"r{level} = Relu (p{level})")
        lines.append(f"s{level} = Sigmoid (r{level})")
        lines.append(f"a{level} = Add (r{level}, s{level})")
        value = f"a{level}"
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> deep (float[n, 2, h, 9] x) => (float[a, b, c, d] y) { '
        + " ".join(lines)
        + f" y = Neg ({value}) }}"
    )
    infer, inferred = onnx.shape_inference.infer_shapes, []

    def infer_shapes(part, *args, **kwargs):
        inferred.extend(node.name or node.output[0] for node in part.graph.node)
        return infer(part, *args, **kwargs)

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", infer_shapes)
    known = types_of(model)
    assert len(inferred) == len(set(inferred)) == 151
    assert known["y"] == ("n", 2, "h", 9)
