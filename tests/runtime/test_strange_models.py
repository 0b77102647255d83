"""Models from strangers: whatever is wrong with a file is said in an error of ours, with the file's place."""

from collections.abc import Iterator

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import unpool
from tests.support import models
from unpool.errors import ModelError
from unpool.graph.load import load
from unpool.graph.nodes import sort_nodes
from unpool.passes.inline import MOST_NODES
from unpool.runtime.lint.lint import lint
from unpool.runtime.rewrite.canonicalise import canonicalise
from unpool.runtime.rewrite.fix import fix
from unpool.runtime.rewrite.upgrade import upgrade

READERS = {
    "session": unpool.InferenceSession,
    "lint": lint,
    "canonicalise": canonicalise,
    "fix": fix,
    "upgrade": lambda source: upgrade(source, 18),
}
SQUARE = np.arange(9, dtype=np.float32).reshape(3, 3)


def product():
    return models.model("g (float[3, 3] x) => (float[3, 3] y) { y = MatMul (x, w) }", w=SQUARE)


def outside(tensor, **place):
    """The tensor with its data in another file, wherever `place` says that this is."""
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.extend(onnx.StringStringEntryProto(key=key, value=value) for key, value in place.items())


PLACES = {
    "negative offset": {"location": "data", "offset": "-4"},
    "offset in words": {"location": "data", "offset": "four"},
    "negative length": {"location": "data", "length": "-36"},
    "length in words": {"location": "data", "length": "all"},
    "offset behind the end": {"location": "data", "offset": "37"},
    "longer than the file": {"location": "data", "length": str(2**62)},
    "longer than the tensor": {"location": "data", "offset": "0", "length": "35"},
    "offset of many digits": {"location": "data", "offset": "9" * 5000},
    "long name": {"location": "d" * 5000},
    "no name": {"location": ""},
    "name with a zero": {"location": "da\0ta"},
    "folder": {"location": "."},
    "nowhere": {"location": "elsewhere"},
}


@pytest.mark.parametrize("reader", ["session", "fix"])
@pytest.mark.parametrize("place", PLACES)
def test_places_of_external_data(place, reader, tmp_path):
    """A place that is none is named with the file; tests/graph/test_external_data.py has those outside of it."""
    (tmp_path / "data").write_bytes(SQUARE.tobytes())
    model = product()
    outside(model.graph.initializer[0], **PLACES[place])
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())

    with pytest.raises(unpool.UnpoolError) as caught:
        READERS[reader](tmp_path / "m.onnx")

    assert len(str(caught.value)) < 1000
    assert "m.onnx" in str(caught.value) or place == "longer than the tensor"


def test_overlapping_data_of_more_than_the_memory(tmp_path):
    """Tensors that share one file are refused together where the machine cannot hold them, before any is read."""
    model = product()
    with open(tmp_path / "data", "wb") as file:
        file.truncate(2**40)
    for number in range(300):
        tensor = model.graph.initializer.add(name=f"w{number}", data_type=TensorProto.FLOAT, dims=[2**38])
        outside(tensor, location="data")
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())

    with pytest.raises(unpool.ShapeError, match=r"m\.onnx: external data: .* GiB"):
        load(tmp_path / "m.onnx")
    assert unpool.InferenceSession(tmp_path / "m.onnx").get_inputs()  # which leaves them in their file


def test_sparse_tensors_may_have_external_data(tmp_path):
    """Values and indices of sparse initializers and of sparse constants are read as those of dense tensors are."""
    model = models.model(
        """g (float[2, 3] x) => (float[2, 3] y, float[2, 3] z) {
            c = Constant ()
            y = Add (x, s)
            z = Add (x, c)
        }"""
    )
    values = numpy_helper.from_array(np.float32([5, 7]), "s")
    places = numpy_helper.from_array(np.array([1, 4]), "s_places")
    sparse = helper.make_sparse_tensor(values, places, [2, 3])
    model.graph.node[0].attribute.append(helper.make_attribute("sparse_value", sparse))
    model.graph.sparse_initializer.append(sparse)
    (tmp_path / "data").write_bytes(values.raw_data + places.raw_data)
    for one in (model.graph.sparse_initializer[0], model.graph.node[0].attribute[0].sparse_tensor):
        outside(one.values, location="data", length="8")
        outside(one.indices, location="data", offset="8")
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())

    y, z = unpool.InferenceSession(tmp_path / "m.onnx").run(None, {"x": np.zeros((2, 3), np.float32)})
    assert y.tolist() == z.tolist() == [[0, 5, 0], [0, 7, 0]]


def values_of(model) -> Iterator[onnx.ValueInfoProto]:
    yield from (model.graph.input[0], model.graph.output[0], model.graph.value_info.add(name="between"))


@pytest.mark.parametrize(
    ("which", "reader"),
    [(which, reader) for which in range(3) for reader in READERS if (which, reader) != (2, "session")],
)
def test_unknown_element_types(which, reader):
    """An element type that the standard does not have, in an input, an output or between them, is named."""
    model = product()
    value = list(values_of(model))[which]
    value.type.tensor_type.elem_type = 99

    words = "99" if reader == "session" else rf"value '{value.name}': expected an element type of ONNX.*got 99"
    with pytest.raises(unpool.ModelError, match=words):
        READERS[reader](model)


@pytest.mark.parametrize("kind", ["path", "bytes", "proto"])
@pytest.mark.parametrize("reader", sorted(set(READERS) - {"session"}))
def test_whatever_else_goes_wrong_is_ours(reader, kind, tmp_path, monkeypatch):
    """An exception that nobody expected leaves as a ModelError with the place of the model and the exception in it."""
    model = models.model("g (float[1, 1, 4] x) => (float[1, 1, 3] y) { y = MaxPool <kernel_shape = [2]> (x) }")
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    given = {"path": tmp_path / "m.onnx", "bytes": model.SerializeToString(), "proto": model}

    def fail(*_):
        raise KeyError("surprise")

    monkeypatch.setattr("unpool.runtime.rewrite.open_model.lift_constants", fail)
    said = {"path": r"m\.onnx", "bytes": r"the \d+ bytes", "proto": "the ModelProto"}[kind]
    with pytest.raises(unpool.ModelError, match=rf"{said}: invalid ONNX model, KeyError: 'surprise'"):
        READERS[reader](given[kind])


@pytest.mark.parametrize("opset", [6, 8])
@pytest.mark.parametrize("reader", ["session", "lint", "fix", "upgrade"])
def test_old_ir_with_initializers_that_are_no_inputs(reader, opset):
    """Models of IR version 3 whose initializers are no inputs are read as everywhere."""
    model = product()
    model.ir_version, model.opset_import[0].version = 3, opset
    made = READERS[reader](model)
    if reader == "session":
        assert np.array_equal(made.run(None, {"x": np.eye(3, dtype=np.float32)})[0], SQUARE)


def test_fix_writes_a_valid_model_of_an_old_ir():
    """What `fix` adds to a model of IR version 3 passes onnx's checker, which wants every initializer as an input."""
    model = models.model(
        """g (float[1, 2, 4] x) => (float[1, 2, 8] z) {
            y, whole = MaxPool <kernel_shape = [2], strides = [2]> (x)
            four = Constant <value = int64[1] {4}> ()
            plane = Mod (whole, four)
            size = Constant <value = int64[3] {1, 2, 8}> ()
            z = MaxUnpool <kernel_shape = [2], strides = [2]> (y, plane, size)
        }""",
        opset=11,
        ir=3,
    )
    fixed = fix(model)

    assert fixed.changes
    onnx.checker.check_model(fixed.model)


def test_external_initializers_of_the_options_are_external_in_the_model():
    """Weights that come with SessionOptions as such, in the place of others, are refused."""
    weights, options = onnxruntime.OrtValue.ortvalue_from_numpy(2 * SQUARE), onnxruntime.SessionOptions()
    options.add_external_initializers(["w"], [weights])
    with pytest.raises(unpool.ModelError, match="non-external initializer"):
        unpool.InferenceSession(product(), options)


def calling(body, count):
    """A model with functions F0, F1, .. whose nodes `body` gives; the graph calls the first one."""
    functions = "".join(
        f'<domain: "local", opset_import: ["" : 17, "local" : 1]> F{number} (a) => (c) {{ {body(number)} }}'
        for number in range(count)
    )
    text = "g (float[3] x) => (float[3] y) { y = local.F0 (x) }"
    return models.model(text, imports=', "local" : 1', functions=functions)


def twice(operator):
    return f"b = {operator} (a) c = {operator} (b)"


@pytest.mark.parametrize("reader", READERS)
def test_functions_that_double_are_refused(reader):
    """24 functions that each call the next one twice would be 16 million nodes: the number is said, at once."""
    model = calling(lambda number: twice(f"local.F{number + 1}") if number < 23 else twice("Relu"), 24)
    with pytest.raises(unpool.ModelError, match=rf"at most {MOST_NODES} nodes .*got 33554430 nodes .*local\.F0"):
        READERS[reader](model)


def test_functions_may_double_a_little():
    """Functions that become few nodes are still inlined."""
    model = calling(lambda number: twice(f"local.F{number + 1}") if number < 3 else twice("Neg"), 4)
    x = np.float32([1, -2, 3])

    assert unpool.InferenceSession(model).run(None, {"x": x})[0].tolist() == x.tolist()


def identity(returned, body=""):
    """A model whose only node calls a function of one input `x`."""
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17, "f" : 1]>
        g (float[2] x) => (float[2] y) {{ y = f.F (x) }}
        <domain: "f", opset_import: ["" : 17]> F (x) => ({returned}) {{ {body} }}""")


def test_a_function_that_does_not_make_its_output_is_refused():
    """The error names the function and the output."""
    with pytest.raises(ModelError, match="F"):
        unpool.InferenceSession(identity("z", "w = Relu (x)"))


def test_functions_that_call_themselves_are_refused():
    """F0 calls F1 calls F0: a circle is named by one of them."""
    model = calling(lambda number: twice(f"local.F{1 - number}"), 2)
    with pytest.raises(unpool.ModelError, match="calls itself"):
        unpool.InferenceSession(model)


def chain(pairs):
    """Names that each take the place of two of the last: x = f(x, x), again and again."""
    return "\n".join(f"a{number + 1} = {pairs} (a{number}, a{number})" for number in range(60))


@pytest.mark.parametrize("pairs", ["Concat <axis = 0>", "Mul", "Add"])
@pytest.mark.parametrize("first", ["Shape (x)", "Constant <value = int64[2] {1, 9223372036854775807}> ()"])
def test_sizes_that_double_are_not_followed(pairs, first):
    """Integers that double their number, their names or their digits 60 times cost nothing while a model is read."""
    model = models.model(
        f"""g (float[n, h] x) => (float[k, m] y) {{
            a0 = {first}
            {chain(pairs)}
            y = Reshape (x, a60)
        }}"""
    )
    lint(model)


def test_a_long_chain_is_no_deep_recursion():
    """3,000 integers, each the last one plus itself, are followed back only as far as anybody writes them."""
    sums = " ".join(f"a{one + 1} = Add (a{one}, a{one})" for one in range(3000))
    body = f"p, a0 = MaxPool <kernel_shape = [2]> (x) {sums} y = MaxUnpool <kernel_shape = [2]> (p, a3000)"
    assert lint(models.model(f"g (float[1, 1, 8] x) => (float[1, 1, 8] y) {{ {body} }}")) == ()


REVERSED = models.model(
    """g (float[1, 1, 4, 4] x, bool k) => (float[1, 1, n, m] z) {
        z = Neg (y)
        y = If (k) <then_branch = a () => (float[1, 1, h, w] p) {
            p = MaxPool <kernel_shape = [2, 2]> (s)
            s = local.Late (r)
        }, else_branch = b () => (float[1, 1, h, w] q) { q = Identity (r) }>
        r = Relu (x)
    }""",
    imports=', "local" : 1',
    functions='<domain: "local", opset_import: ["" : 17]> Late (f) => (h) { h = Add (g, g) g = Abs (f) }',
)
"""Nodes of the graph, of a body and of a function in the wrong order; the body reads what the graph makes later."""


def test_nodes_are_sorted_at_every_depth():
    """Those of bodies and functions too; the caller's model stays as it was."""
    before, x = REVERSED.SerializeToString(), np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    session = unpool.InferenceSession(REVERSED)

    assert session.run(None, {"x": x, "k": np.array(True)})[0].tolist() == (-2 * x[:, :, 1:, 1:]).tolist()
    assert REVERSED.SerializeToString() == before


def test_sorted_nodes_keep_their_places():
    """Only nodes that come too early move, and a model in order is not copied."""
    nodes = [helper.make_node("Relu", [read], [made]) for read, made in ("xa", "cb", "xc", "xd", "de")]
    model = helper.make_model(helper.make_graph(nodes, "g", [], []))
    ordered = sort_nodes(model)

    assert [node.output[0] for node in ordered.graph.node] == ["a", "c", "b", "d", "e"]
    assert sort_nodes(ordered) is ordered


def test_a_cycle_in_a_body_is_refused_by_its_nodes():
    """Before onnx sees it, in one sentence that names the nodes."""
    model = models.model(
        """g (float[4] x, bool k) => (float[4] z) {
            z = If (k) <then_branch = a () => (float[4] p) { s = Add (x, p) p = Relu (s) },
                        else_branch = b () => (float[4] q) { q = Identity (x) }>
        }"""
    )
    with pytest.raises(unpool.ModelError, match="not acyclic, these nodes need each other: 'Add->s', 'Relu->p'"):
        unpool.InferenceSession(model)
