"""What `unpool explain` says of versions and sizes: held against onnx's schemas and against the slow loops."""

import json
import math
from itertools import pairwise, product

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import unpool
from tests import oracle
from unpool.cli.app import app
from unpool.cli.errors import OK, UNFIT, UNSUPPORTED, USAGE
from unpool.errors import ShapeError, UnpoolError, UnsupportedError
from unpool.explanation.versions import TEXT_CHANGES
from unpool.operators.contract import ATTRIBUTES, OPERATORS, VERSIONS, versions_of

STEPS = [(before, after) for operator in OPERATORS for before, after in pairwise(versions_of(operator, ""))]
FUNCTIONS = {"floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "min": min, "max": max, "__builtins__": {}}


def schema(version):
    """Onnx's own schema of a version."""
    return onnx.defs.get_schema(version.operator, version.since_version)


@pytest.mark.parametrize(("before", "after"), STEPS, ids=lambda version: version.label)
def test_every_difference_of_two_schemas_is_named(before, after):
    """Each attribute, text, type and output in which two versions of onnx's schemas differ is listed, and no other.

    The sections "Differences" of the operators' pages are made of these schemas.
    """
    first, second = schema(before), schema(after)
    named = {
        name
        for name, one in second.attributes.items()
        if name not in first.attributes or one.description != first.attributes[name].description
    }
    named |= {"summary"} if first.doc != second.doc else set()
    named |= {"outputs"} if len(first.outputs) != len(second.outputs) else set()
    types = [set(one.type_constraints[0].allowed_type_strs) for one in (first, second)]
    named |= {"types"} if types[0] != types[1] else set()
    found = unpool.explain(before.operator, opset=before.since_version, to=after.since_version).changes
    assert {one.subject for one in found} == named
    assert {one.since for one in found} == {after.since_version}


@pytest.mark.parametrize(("before", "after"), STEPS, ids=lambda version: version.label)
def test_changes_of_meaning_are_those_of_the_contract(before, after):
    """Where a switch of the contract differs between two versions, and only there, results may be others or refused."""
    found = unpool.explain(before.operator, opset=before.since_version, to=after.since_version).changes
    assert sum(one.results in ("others", "refused") for one in found) == len(before.switches ^ after.switches)


@pytest.mark.parametrize("operator", OPERATORS)
def test_words_are_those_of_the_schemas(operator):
    """Names of inputs and outputs, and defaults of attributes that onnx states, are the schema's."""
    newest = schema(versions_of(operator, "")[-1])
    assert versions_of(operator, "")[-1].inputs == tuple(one.name for one in newest.inputs)
    assert versions_of(operator, "")[-1].outputs == tuple(one.name for one in newest.outputs)
    for name, one in newest.attributes.items():
        value = onnx.helper.get_attribute_value(one.default_value) if one.default_value.name else None
        if value is not None:
            assert ATTRIBUTES[name][0] == (value.decode() if isinstance(value, bytes) else str(value))


def test_everything_has_words():
    """Each attribute of each version is explained, and a text that changed belongs to a version there is."""
    assert {name for version in VERSIONS for name in version.attributes} == set(ATTRIBUTES)
    changed = {(operator, change.since) for operator, changes in TEXT_CHANGES.items() for change in changes}
    assert changed <= {(version.operator, version.since_version) for version in VERSIONS}


def test_a_contract_says_what_a_version_accepts():
    """Versions, opsets, attributes with their defaults, optional inputs and outputs; another layout, other axes."""
    lines = str(unpool.explain("max_pool", opset=9)).splitlines()
    assert lines[0] == "MaxPool-8, for opsets 8 to 9; there are versions 1, 8, 10, 11, 12, 22"
    assert not any("ceil_mode" in line for line in lines)
    assert [line.split()[:4] for line in lines if line.startswith("  kernel_shape")] == [
        ["kernel_shape", "ints", "required", "taps"]
    ]
    assert any(line.split()[:3] == ["Indices", "int64", "optional"] for line in lines)
    nhwc = unpool.explain("MaxUnpool", layout="NHWC").contract
    assert nhwc.label == "MaxUnpool-11 (com.ms.internal.nhwc)"
    assert {one.name: one.description.partition(")")[0] for one in nhwc.inputs} == {
        "X": "(N, D1..Dk, C",
        "I": "(N, C, D1..Dk",
        "output_shape": "(N, C, D1..Dk",
    }


def check_steps(call):
    """Every line of arithmetic, computed as it is written, comes to what it says, and the last sizes are the call's."""
    for one in call.axes:
        for step in one.steps:
            assert eval(step.numbers, dict(FUNCTIONS)) == step.value, str(step)
        found = {step.name: step.value for step in one.steps}
        assert found.get("small", one.axis.small) == one.axis.small
        assert found.get("large", one.axis.large) == one.axis.large
        assert found["begin"] == one.axis.begin if "begin" in found else one.axis.begin >= 0


def covered(one):
    """Cells of the large axis by small position, without padding."""
    return {cover.small: {cell for cell in cover.large if 0 <= cell < one.axis.large} for cover in one.drawing.windows}


PLACES = [{"pads": [0, 0]}, {"pads": [1, 0]}, {"pads": [0, 2]}, {"pads": [1, 1], "ceil_mode": 1}, {"ceil_mode": 1}]
PLACES += [{"auto_pad": mode} for mode in ("SAME_UPPER", "SAME_LOWER", "VALID")]
PLACES += [{"auto_pad": "VALID", "ceil_mode": 1}]


@pytest.mark.parametrize("compat", ["spec", "ort"])
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_pools_cover_what_the_slow_loops_read(place, compat):
    """Sizes, and which elements each window of a MaxPool reads, for a grid of windows: as the oracle's."""
    checked = 0
    for size, window, stride, dilation in product((1, 4, 7), (1, 2, 3), (1, 2, 3), (1, 2)):
        given = {"kernel_shape": [window], "strides": [stride], "dilations": [dilation], **place}
        try:
            (call,) = unpool.explain("MaxPool", size=size, compat=compat, **given).calls
        except UnpoolError:
            with pytest.raises(oracle.Refused):
                oracle.max_pool(np.zeros((1, 1, size), np.float32), compat=compat, **given)
            continue
        check_steps(call)
        one_hot = np.eye(size, dtype=np.float32)[:, None]
        y = oracle.max_pool(one_hot, compat=compat, **given)
        assert call.output == y.shape[2:]
        read = {small: set(np.flatnonzero(y[:, 0, small] == 1).tolist()) for small in range(y.shape[2])}
        assert covered(call.axes[0]) == read
        left = {cell for span in call.axes[0].drawing.uncovered for cell in range(*span)}
        assert left == set(range(size)) - set().union(*read.values())
        checked += 1
    assert checked > 16


GROWTHS = [{"pads": [0, 0]}, {"pads": [1, 0]}, {"output_padding": [1]}, {"output_shape": [6]}, {"output_shape": [3]}]
GROWTHS += [{"auto_pad": mode} for mode in ("SAME_UPPER", "SAME_LOWER", "VALID")]
GROWTHS += [{"auto_pad": "SAME_UPPER", "output_shape": [5]}]


@pytest.mark.parametrize(("opset", "compat"), [(1, "spec"), (11, "spec"), (11, "ort")])
@pytest.mark.parametrize("place", GROWTHS, ids=str)
def test_growth_covers_what_the_slow_loops_write(place, opset, compat):
    """Sizes, and which cells each element of a ConvTranspose reaches, in the versions that differ: as the oracle's."""
    checked = 0
    for size, window, stride, dilation in product((1, 3), (1, 2, 3), (1, 2, 3), (1, 2)):
        given = {"kernel_shape": [window], "strides": [stride], "dilations": [dilation], **place}
        x, w = np.eye(size, dtype=np.float32)[:, None], np.ones((1, 1, window), np.float32)
        try:
            (call,) = unpool.explain("ConvTranspose", opset=opset, size=size, compat=compat, **given).calls
        except UnpoolError:
            with pytest.raises(oracle.Refused):
                oracle.conv_transpose(x, w, compat=compat, version=opset, **given)
            continue
        check_steps(call)
        y = oracle.conv_transpose(x, w, compat=compat, version=opset, **given)
        assert call.output == y.shape[2:]
        assert covered(call.axes[0]) == {small: set(np.flatnonzero(y[small, 0]).tolist()) for small in range(size)}
        assert call.axes[0].drawing.coverage == tuple(y.sum((0, 1)).astype(int).tolist())
        checked += 1
    assert checked > 8


def test_unpooling_infers_or_is_asked():
    """The inferred size of a MaxUnpool, the asked one beside it, and the pads that move nothing."""
    (call,) = unpool.explain("MaxUnpool", size=(3, 4), kernel_shape=[3, 2], strides=2, pads=[1, 0, 0, 0]).calls
    check_steps(call)
    assert call.output == (6, 8)
    (call,) = unpool.explain("MaxUnpool", size=3, kernel_shape=2, strides=2, output_shape=7).calls
    check_steps(call)
    assert (call.output, call.axes[0].drawing.uncovered) == ((7,), ((6, 7),))


def test_the_drawing():
    """Data, padding, gaps and counts, in their columns; of a long axis the begin and the end."""
    said = str(unpool.explain("MaxPool", size=6, kernel_shape=2, strides=3, dilations=2, pads=[1, 0]))
    assert said.splitlines()[-5:] == [
        "  large    . 0 1 2 3 4 5",
        "  small 0  o - #",
        "  small 1        # - #",
        "  windows    0 1 1 0 1 0",
        "  left over: no window reads 0, 3, 5",
    ]
    lines = str(unpool.explain("ConvTranspose", size=100, kernel_shape=2, strides=2)).splitlines()
    head, tail = lines.index("  the beginning:"), lines.index("  the end:")
    assert lines[head + 1].split() == ["large", *map(str, range(12))]
    assert lines[tail + 1].split() == ["large", *map(str, range(188, 200))]
    assert [line.split()[1] for line in lines[tail + 2 : -1]] == ["94", "95", "96", "97", "98", "99"]


@pytest.mark.parametrize(
    ("operator", "size", "channels", "window", "kernels"),
    [
        ("MaxPool", (4, 4), None, {"kernel_shape": 2, "strides": 2}, {"tiles"}),
        ("MaxUnpool", (4, 4), None, {"kernel_shape": 2, "strides": 2}, {"windows"}),
        ("MaxUnpool", (4, 4), None, {"kernel_shape": 3, "strides": 3}, {"scatter"}),
        ("ConvTranspose", (1, 1), 64, {"kernel_shape": 4}, {"gemm_1x1"}),
        ("ConvTranspose", (28, 28), (64, 32), {"kernel_shape": 4, "strides": 2, "pads": 1}, {"winograd"}),
        ("ConvTranspose", (28, 28), None, {"kernel_shape": 4, "strides": 2, "group": 3}, {"direct"}),
    ],
)
def test_the_kernel_of_a_call_is_named(operator, size, channels, window, kernels):
    """It depends on the spatial sizes, and for ConvTranspose on the channels of X and of the output."""
    (call,) = unpool.explain(operator, size=size, channels=channels, **window).calls
    assert call.kernel in kernels
    assert list(call.lines())[1].endswith(f"{call.channels[1]} channels: {call.kernel}")


def test_wrong_requests_say_what_is_wrong():
    """Operators, layouts, opsets, attributes and sizes that there are not."""
    for error, words, said in (
        (UnsupportedError, {"operator": "AveragePool"}, "operator is one of MaxPool"),
        (UnpoolError, {"layout": "NCWH"}, "layout is one of"),
        (UnpoolError, {"opset": 12, "to": 8}, "to needs an opset from 12 on"),
        (UnsupportedError, {"opset": 1, "size": 4, "kernel_shape": 2, "ceil_mode": 1}, "which MaxPool-10 has"),
        (UnpoolError, {"kernel_shape": 2}, "kernel_shape needs size"),
        (UnpoolError, {"channels": 2}, "channels needs size"),
        (UnpoolError, {"size": 4, "kernel_shape": 2, "channels": (1, 2, 3)}, "one or two integers of 1 or more"),
        (UnpoolError, {"size": 4, "kernel_shape": 2, "channels": 0}, "one or two integers of 1 or more"),
        (
            UnpoolError,
            {"operator": "ConvTranspose", "size": 4, "kernel_shape": [2], "group": 2, "channels": 3},
            "3 of X do not split into 2 groups",
        ),
        (UnpoolError, {"kernel": 2}, "Did you mean kernel_shape?"),
        (UnsupportedError, {"opset": 7, "to": 99}, "to: expected an opset up to"),
        (UnsupportedError, {"opset": 99}, "opset: expected an opset up to"),
        (UnpoolError, {"operator": "ConvTranspose", "size": 4}, "needs kernel_shape, the window of W"),
        (UnpoolError, {"size": -1, "kernel_shape": 1}, "values of 0 or more"),
        (UnpoolError, {"size": 2**20, "kernel_shape": 1}, "at most 65536 elements"),
        (ShapeError, {"size": 2, "kernel_shape": 6}, "needs room for a window of 6"),
    ):
        with pytest.raises(error, match=said):
            unpool.explain(**{"operator": "MaxPool", **words})


def command(code, *words):
    """The command ends with this code; its lines on stdout and on stderr."""
    result = CliRunner().invoke(app, ["explain", *words])
    assert result.exit_code == code, result.output
    return result.stdout.splitlines(), result.stderr.splitlines()


def test_command_prints_what_the_function_prints():
    """Settings are written as KEY=VALUE, in one or several numbers, and --json has the same."""
    words = ["maxpool", "size=7x9", "kernel_shape=3", "strides=2,1", "auto_pad=SAME_LOWER", "--opset", "12"]
    expected = unpool.explain("MaxPool", opset=12, size=(7, 9), kernel_shape=3, strides=[2, 1], auto_pad="SAME_LOWER")
    lines, _ = command(OK, *words)
    assert lines == str(expected).splitlines()
    found = json.loads("\n".join(command(OK, *words, "--json")[0]))
    assert found["calls"][0]["output"] == [4, 9]
    assert found["calls"][0]["axes"][0]["drawing"]["windows"][0] == {"small": 0, "large": [-1, 0, 1]}


def test_command_shows_two_versions_side_by_side():
    """The changes, and the same sizes in both versions: ConvTranspose-1 cuts an odd cell at the other side."""
    lines, _ = command(
        OK, "ConvTranspose", "size=1", "kernel_shape=2", "output_shape=[1]", "--opset", "1", "--to", "11"
    )
    assert lines[0] == "ConvTranspose-1 -> ConvTranspose-11"
    results = {line.split()[1]: line.rpartition("  ")[2] for line in lines[3:9]}
    assert results == {
        "auto_pad": "same results",
        "dilations": "same results",
        "output_padding": "may be refused now",
        "output_shape": "same results",
        "strides": "same results",
        "summary": "other results",
    }
    assert [line for line in lines if line.startswith("  begin = ")] == [
        "  begin = floor(total / 2) = floor(1 / 2) = 0",
        "  begin = total - floor(total / 2) = 1 - floor(1 / 2) = 1",
    ]


@pytest.mark.parametrize(
    ("code", "words", "said"),
    [
        (USAGE, ["MaxPool", "kernel_shape"], "expected KEY=VALUE"),
        (USAGE, ["MaxPool", "size=3", "size=4"], "size is given twice"),
        (USAGE, ["MaxPool", "opset=12"], "Write --opset"),
        (UNSUPPORTED, ["Conv"], "operator is one of MaxPool, MaxUnpool, ConvTranspose"),
        (UNFIT, ["MaxPool", "size=5", "kernel_shape=2,2"], "kernel_shape needs 1 values"),
    ],
)
def test_command_refuses_in_one_line(code, words, said):
    """Words that are no settings, options written as settings, unknown operators, lists that do not fit."""
    out, (line,) = command(code, *words)
    assert out == []
    assert said in line
