"""Models and runtimes beside each other: where they differ, by how much, and what is refused."""

import json

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import unpool
from tests import oracle
from tests.cases import decomposed
from tests.support import models, models_old
from tests.support.command import invoke
from unpool.cli.errors import FINDINGS, OK, UNSUPPORTED
from unpool.errors import UnpoolError, UnsupportedError
from unpool.numerics import Tolerance, diff_arrays
from unpool.runtime.compare.align import count_ties
from unpool.runtime.compare.records import IndexTies

FLOATS = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)


def kinds(peer):
    """Kind of difference by the name of the value."""
    return {one.value: one.diff.kind for one in peer.values}


def begins(peer):
    """The values that depart although all that their nodes read agrees."""
    return [one.value for one in peer.values if one.is_first_difference]


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize(("start", "count"), [(1.0, 5), (0.0, 3), (-2.0, 4)])
def test_ulp_counts_the_floats_in_between(kind, start, count):
    """Going up float by float, across zero and across a power of two too, takes as many steps as ulp says."""
    first = np.array([start], kind)
    other = first
    for _ in range(count):
        other = np.nextafter(other, np.array([3], kind))
    found = diff_arrays(first, other, Tolerance(relative=0))
    assert (found.kind, found.ulp, found.share) == ("values", count, 1.0)
    assert diff_arrays(first, other, Tolerance(0, ulp=count)).kind == "close"
    assert diff_arrays(first, other, Tolerance(0, ulp=count - 1)).kind == "values"


def test_ulp_across_zero():
    """Both zeros are one number, and the smallest floats around it are two steps apart."""
    tiny = np.float32(1e-45)
    assert diff_arrays(np.array([-tiny]), np.array([tiny]), Tolerance(0)).ulp == 2
    assert diff_arrays(np.float32([-0.0]), np.float32([0.0]), Tolerance(0)).kind == "equal"


def test_a_difference_names_the_worst_element():
    """Largest difference, the same over the largest element, its place and both elements there."""
    found = diff_arrays(np.float64([[1, 2], [4, 8]]), np.float64([[1, 2.5], [3, 8]]), Tolerance(0.1))
    assert (found.max_abs, found.max_rel, found.index, found.expected, found.actual) == (1.0, 0.125, (1, 0), "4", "3")
    assert (found.kind, found.share) == ("values", 0.25)


ONE, NUMBERS = np.zeros((2, 3), np.float32), np.float64([1, 8])
KINDS = [
    (NUMBERS, np.float64([1.5, 8]), Tolerance(0.1), "close"),
    (NUMBERS, np.float64([4, 8]), Tolerance(0.1, share=0.5), "close"),
    (ONE, ONE.astype(np.float64), Tolerance(), "type"),
    (ONE, ONE.T, Tolerance(), "shape"),
    (np.int64([7]), np.int64([8]), Tolerance(relative=1), "values"),
    (np.array(["a"], object), np.array(["b"], object), Tolerance(), "values"),
    ([ONE, ONE], [ONE, ONE + 1], Tolerance(), "values"),
    ([ONE], [ONE, ONE], Tolerance(), "shape"),
]


@pytest.mark.parametrize(("first", "other", "tolerance", "kind"), KINDS)
def test_kinds_of_differences(first, other, tolerance, kind):
    """Another type or shape is one of its own; integers and texts have no tolerance, lists count by parts."""
    assert diff_arrays(first, other, tolerance).kind == kind


def test_nan_and_infinity_are_equal_to_themselves_only():
    """NaN agrees with NaN, an infinity with itself; anything else beside them departs, whatever the tolerance."""
    some = np.float32([np.nan, np.inf, -np.inf, 1])
    assert diff_arrays(some, some.copy(), Tolerance()).kind == "equal"
    for other in ([1, np.inf, -np.inf, 1], [np.nan, -np.inf, -np.inf, 1], [np.nan, 5, -np.inf, 1]):
        found = diff_arrays(some, np.float32(other), Tolerance(relative=100))
        assert (found.kind, found.share, found.ulp) == ("values", 0.25, None)


@pytest.mark.parametrize("storage_order", [0, 1])
def test_choices_tell_ties_from_other_values(storage_order):
    """Indices that differ are counted by what they name: an equal element, an almost equal one, another, or none."""
    x = np.float32([[[[5, 5, 1], [2, 3, 7], [4, 6.9999, 0]]]])
    node = onnx.helper.make_node("MaxPool", ["x"], ["y", "i"], kernel_shape=[3, 3], storage_order=storage_order)
    place = {value: index for index, value in enumerate((x[0, 0].T if storage_order else x[0, 0]).ravel().tolist())}
    _, ours = oracle.max_pool(x, kernel_shape=[3, 3], storage_order=storage_order, return_indices=True)
    assert ours.ravel().tolist() == [place[7.0]]
    five = [0, 3 if storage_order else 1]
    found = count_ties(
        node,
        x,
        np.array([five[0], place[7.0], place[7.0], place[7.0], 2]),
        np.array([five[1], place[np.float32(6.9999).item()], place[4.0], 9, 2]),
        Tolerance(),
    )
    assert found == IndexTies(ties=1, near_ties=1, other_values=1, outside=1)
    assert str(found) == "indices: 1 tie, 1 almost tie, 1 of other values, 1 outside"


def test_one_model_in_five_runtimes():
    """Where the reference counts indices wrongly, what OpenVINO refuses, and who agrees, value by value."""
    done = unpool.compare(models.segnet(), against=["onnxruntime", "reference", "openvino", "torch", "unpool"])
    ort, reference, openvino, by_torch, ours = done.reports
    assert not ort.differs
    assert set(kinds(ours).values()) == {"equal"}
    assert len(ort.values) == len(ours.values) == 16
    assert begins(reference) == ["i2"] == [reference.first_difference.value]
    assert kinds(reference)["p2"] == "close"
    assert reference.first_difference.ties.other_values > 0 == reference.first_difference.ties.outside
    assert [one.diff.kind for one in reference.outputs] == ["values"]
    assert [(one.node, one.operator) for one in openvino.unsupported] == [("MaxUnpool->u2", "MaxUnpool-11")]
    assert [one.value for one in openvino.values] == ["c1", "n1", "r1", "p1", "i1", "c2", "r2", "p2", "i2"]
    assert not openvino.differs
    assert list(kinds(by_torch)) == ["p1", "i1", "p2", "i2", "u2", "d2", "u1"]
    assert not by_torch.differs
    lines = str(done).splitlines()
    assert lines[0] == f"the ModelProto: {done.runtime} on image 1x3x12x10 float32, compared with"
    assert any(
        line.endswith("reference: the output differs; first difference at MaxPool->p2 (MaxPool-12)") for line in lines
    )
    assert any("cannot run MaxUnpool->u2 (MaxUnpool-11): No conversion rule found" in line for line in lines)


def test_the_reference_falls_over_in_the_middle():
    """A node on which the reference raises is named, and what it made before is compared."""
    (reference,) = unpool.compare(models_old.segnet_9().model, against=["reference"]).reports
    assert [one.node for one in reference.unsupported] == ["MaxUnpool->u1"]
    assert "out of bounds" in reference.unsupported[0].reason
    assert reference.values[-1].node != "MaxUnpool->u1"
    assert begins(reference) == ["n1"]


def test_versions_that_others_do_not_tell_apart():
    """OpenVINO runs ConvTranspose-1 with output_shape as version 11: the node is named, and later ones follow."""
    network = models_old.segnet_6()
    done = unpool.compare(network.model, against=["openvino"])
    assert done.reports[0].first_difference.operator == "ConvTranspose-1"
    assert begins(done.reports[0]) == ["d2"]


def test_the_channels_last_domain_is_refused_by_its_name():
    """No other runtime runs com.ms.internal.nhwc; the values before its first node are compared all the same."""
    done = unpool.compare(models.nhwc(), against=["onnxruntime", "torch"])
    ort, by_torch = done.reports
    assert [one.node for one in ort.unsupported] == ["MaxPool->p"]
    assert list(kinds(ort)) == ["r", "last"]
    assert [one.operator.split("-")[0] for one in by_torch.unsupported] == ["MaxPool", "MaxUnpool", "ConvTranspose"]
    assert done.has_unsupported
    assert not done.differs


def test_two_models_of_the_same_graph():
    """Other weights differ where they are used, and nodes behind them only follow."""
    first, second = models.segnet(), models.segnet()
    weights = next(one for one in second.graph.initializer if one.name == "w3")
    weights.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weights) * np.float32(1.25), "w3"))
    done = unpool.compare(first, second)
    (peer,) = done.reports
    assert begins(peer) == ["d2"]
    assert peer.first_difference.node == "ConvTranspose->d2"
    assert done.differs
    assert not unpool.compare(first, second, tolerance=Tolerance(share=1)).differs


def recurring(first, second, before="", image="x"):
    """A Conv, a pool and a sum, whose inner values have these two names, behind other nodes that make `image` of x."""
    return models.model(
        f"""g (float[1, 1, 6, 6] x) => (float[1, 1, 3, 3] y) {{
            {before}
            {first} = Conv <pads = [1, 1, 1, 1]> ({image}, w)
            {second} = MaxPool <{models.POOL}> ({first})
            y = Add ({second}, one)
        }}""",
        w=models.random(1, 1, 3, 3),
        one=np.float32([1]),
    )


def test_names_that_recur_elsewhere_are_other_values():
    """Values are compared where the same operators lead to both, not where names recur."""
    done = unpool.compare(recurring("val_1", "val_2"), recurring("val_2", "val_1"))
    (peer,) = done.reports
    assert kinds(peer) == {"val_1": "equal", "val_2": "equal", "y": "equal"}
    assert not done.differs
    said = ": the output agrees, bit for bit; all 3 values agree (3 bit for bit); 0 without a counterpart"
    assert str(done).splitlines()[1].endswith(said)


def test_a_recurring_name_of_another_shape_or_operator_is_no_diff_arrays():
    """One network with more nodes in one of its files: outputs agree, and what has no counterpart is only counted."""
    first = recurring("val_1", "val_2")
    second = recurring("conv", "pool", before="val_2 = Neg (x) val_1 = Neg (val_2)", image="val_1")
    done = unpool.compare(first, second)
    (peer,) = done.reports
    assert (peer.values, peer.unmatched_count, done.differs) == ((), 3, False)
    assert "the output agrees, bit for bit; no value in between was compared; 3 without a counterpart" in str(done)


def test_an_output_that_one_model_lacks_is_a_diff_arrays():
    """Outputs are counted: a model with one output less differs."""
    first, second = recurring("a", "b"), recurring("a", "b")
    first.graph.output.insert(0, onnx.helper.make_tensor_value_info("a", 1, None))
    for pair in ((first, second), (second, first)):
        (peer,) = unpool.compare(*pair).reports
        assert sorted(one.diff.kind for one in peer.outputs) == ["equal", "type"]
        assert "1 of 2 outputs differ" in next(iter(peer.lines()))


def test_inner_values_alone_leave_two_models_equal():
    """A value in between that differs is named, and the exit code of two models is that of their outputs."""
    text = "g (float[1, 4] x) => (float[1, 4] y) { a = Mul (x, factor) b = Sign (a) y = Neg (b) }"
    first, second = (models.model(text, factor=np.float32([factor])) for factor in (2, 3))
    done = unpool.compare(first, second)
    assert (begins(done.reports[0]), done.differs) == (["a"], False)
    assert "the output agrees, bit for bit; first difference at Mul->a (Mul-14)" in str(done)


def test_two_models_with_other_names():
    """Outputs and inputs of other names are compared in their order."""
    first = models.none_of_ours()
    second = models.model("other (float[2, 3] a) => (float[2, 3] b) { b = Neg (a) }")
    (peer,) = unpool.compare(first, second).reports
    assert peer.values == ()
    assert [one.value for one in peer.outputs] == ["y"]
    assert peer.differs
    with pytest.raises(UnpoolError, match="inputs of different number"):
        unpool.compare(first, models.conditional())


def test_open_sizes_are_those_of_the_other_model():
    """A model with open sizes is compared with one of fixed sizes on inputs that both take, whichever comes first."""
    texts = ("g (float[n, 1, h, w] x) => (float[n, 1, h, w] y)", "g (float[1, 1, 5, 9] a) => (float[1, 1, 5, 9] b)")
    first = models.model(f"{texts[0]} {{ y = Relu (x) }}")
    second = models.model(f"{texts[1]} {{ b = Relu (a) }}")
    for pair in ((first, second), (second, first)):
        done = unpool.compare(*pair)
        assert not done.has_unsupported
        assert done.inputs[0].split(maxsplit=1)[1] == "1x1x5x9 float32"
        assert "the output agrees, bit for bit" in str(done)
    with pytest.raises(UnpoolError, match="the inputs differ"):
        unpool.compare(first, second, sizes={"h": 6})


@pytest.mark.parametrize("other", ["float[1, 1, 6, 9]", "float[1, 5, 9]", "double[1, 1, 5, 9]"])
def test_models_of_other_inputs_are_refused(other):
    """The error names the input with both shapes and types, not a node on which the second model fails."""
    models_of = (models.model(f"g ({kind} x) => (float y) {{ y = Relu (x) }}") for kind in ("float[1, 1, 5, 9]", other))
    with pytest.raises(UnpoolError, match=r"input 'x' of .* of .* 1x1x5x9 float32: the inputs differ"):
        unpool.compare(*models_of)


def test_what_fix_writes_is_the_same_model():
    """A decomposed unpooling and the MaxUnpool in its place agree in every value that both have."""
    model = decomposed.by_hand()
    done = unpool.compare(model, unpool.fix(model).model)
    assert not done.differs
    assert done.reports[0].values != ()


def torch_cases():
    """Nodes of every kind that torch has: windows, ceil_mode, orders of indices, groups and grown ends."""
    return models.model(
        """every (float[2, 4, 9, 7] x, float[2, 3, 8] line) => (float[n, m, h, w] y, float[a, b, c] z) {
            p, i = MaxPool <kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1], dilations = [1, 2]> (x)
            q, j = MaxPool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1, storage_order = 1> (x)
            r, k = MaxPool <kernel_shape = [3, 3], strides = [2, 2], auto_pad = "SAME_LOWER"> (x)
            s = Shape (x)
            u = MaxUnpool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (r, k, s)
            t = ConvTranspose <strides = [2, 2], group = 2, output_padding = [1, 0], pads = [1, 1, 1, 1]> (u, w, b)
            v = ConvTranspose <strides = [2, 2], pads = [1, 1, 0, 1]> (t, w2)
            f = Cast <to = 1> (j)
            y = Add (v, zero)
            l, m0 = MaxPool <kernel_shape = [2], strides = [2]> (line)
            z = MaxUnpool <kernel_shape = [2], strides = [2]> (l, m0)
        }""",
        w=models.random(4, 3, 3, 3),
        b=models.random(6),
        w2=models.random(6, 2, 3, 3),
        zero=np.float32(0),
    )


def test_torch_computes_each_node_alone():
    """What torch can write gives our numbers, indices too; what it cannot is refused with the reason."""
    model = torch_cases()
    model.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, kind, None) for name, kind in (("p", 1), ("i", 7), ("q", 1), ("j", 7))
    )
    (peer,) = unpool.compare(model, against=["torch"]).reports
    assert {name: kind for name, kind in kinds(peer).items() if kind != "equal"}.keys() <= {"t", "v"}
    assert not peer.differs
    assert set(kinds(peer)) == {"q", "j", "r", "k", "u", "t", "v", "l", "m0", "z"}
    assert [(one.node, one.reason.split(",")[0]) for one in peer.unsupported] == [
        ("MaxPool->p", "torch pads both ends alike")
    ]


def test_wrong_requests_are_refused_at_once():
    """Unknown runtimes, torch for two models, a negative tolerance."""
    model = models.only_pool()
    for words in ({"against": ["tensorflow"]}, {"against": []}, {"other": model, "against": ["torch"]}):
        with pytest.raises(UnpoolError, match="compare: "):
            unpool.compare(model, **words)
    with pytest.raises(UnpoolError, match="tolerance: share is a number from 0 to 1, got 2"):
        Tolerance(share=2)


def test_a_model_beyond_two_gibibytes_is_refused(monkeypatch):
    """Other runtimes take the model from memory, as one message; the error says so, before anything runs."""
    monkeypatch.setattr("unpool.graph.weights.LARGEST_MESSAGE", 100)
    with pytest.raises(UnsupportedError, match="is larger than 2 GiB with its weights"):
        unpool.compare(models.only_pool())


def test_given_inputs_and_bodies():
    """Inputs may be given; an If is one node, and the first line says so."""
    feed = {"keep": np.array(True), "x": models.random(1, 2, 6, 6)}
    done = unpool.compare(models.conditional(), feed=feed)
    assert done.notes == ("as one node each, whatever is inside: If->picked",)
    assert [one.value for one in done.reports[0].values] == ["r", "picked", "y"]
    assert not done.differs


# what a new user types


def says(code, *words):
    """The command ends with this code; what it prints, and its one error line."""
    result = invoke("compare", *words)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.stdout.splitlines(), result.stderr.splitlines()


def test_command_on_the_demo():
    """OpenVINO refuses the demo's first MaxUnpool, which is no departure but is no agreement either."""
    model = f"{unpool.__path__[0]}/data/coins.onnx"
    out, _ = says(UNSUPPORTED, model, "--against", "onnxruntime,openvino")
    assert out[0].endswith("on image 2x1x32x32 float32, compared with")
    assert ": the output agrees, " in out[1]
    assert "; all 85 values agree (" in out[1]
    assert "cannot run node_max_unpool2d (MaxUnpool-11): No conversion rule found for operations: MaxUnpool" in out[2]
    assert "the others were not compared" in out[3]


def test_command_on_a_convtranspose_1_model_and_an_old_ir(tmp_path):
    """A departure is exit 1, with its numbers as lines and as JSON; a model of IR version 3 runs everywhere."""
    onnx.save(models_old.segnet_6().model, tmp_path / "old.onnx")
    out, _ = says(FINDINGS, tmp_path / "old.onnx", "--against", "openvino")
    assert out[1].endswith("first difference at ConvTranspose->d2 (ConvTranspose-1)")
    row = next(line for line in out if line.split()[:1] == ["ConvTranspose->d2"])
    assert row.split()[1:4] == ["ConvTranspose-1", "d2", "values"]
    assert out[-1].endswith(" after these")
    out, _ = says(FINDINGS, tmp_path / "old.onnx", "--against", "openvino", "--json")
    found = json.loads("\n".join(out))
    assert found["differs"]
    assert [one["value"] for one in found["reports"][0]["values"] if one["is_first_difference"]] == ["d2"]
    onnx.save(models.old_ir(), tmp_path / "ir3.onnx")
    out, _ = says(OK, tmp_path / "ir3.onnx", "--against", "onnxruntime,openvino,reference,torch", "--all")
    assert sum(line.split()[:1] == ["ConvTranspose->t"] for line in out) == 4
    np.save(tmp_path / "x.npy", models.random(1, 2, 4))
    out, _ = says(OK, tmp_path / "ir3.onnx", "-i", tmp_path / "x.npy", "--tolerance", "1e-3", "--ulp", "4")
    assert out[0].endswith("on x 1x2x4 float32, compared with")


def test_the_pass_that_changes_an_output_is_named():
    """A converted Conv rounds in other places; pooling alone has no pass that changes it."""
    model = models.model(
        "g (float[1, 32, 64, 64] x) => (float[1, 3, 64, 64] y) { y = Conv <pads = [3, 3, 3, 3]> (x, w) }",
        w=models.random(3, 32, 7, 7),
    )
    found = unpool.compare(model, bisect_passes=True)
    assert [(change.name, change.output, 0 < change.diff.error < 1e-5) for change in found.passes] == [
        ("convert_conv", "y", True)
    ]
    assert str(found).splitlines()[-1].startswith("  convert_conv changes y by ")
    assert unpool.compare(models.plain_pools(), bisect_passes=True).passes == ()
