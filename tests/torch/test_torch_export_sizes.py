"""Sizes left open: a Dim means every size in its range, in the file too; verify=True runs the file at several."""

import io
import sys
import warnings

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from torch.export import Dim, ShapesCollection

import unpool
from tests.cases.exports import RoundTrip, noise
from tests.support.networks import Levels, Unsized
from unpool.torch import export
from unpool.torch.exporting.dynamic_shapes import read_dynamic_shapes

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch", "ignore:.*legacy Torch:DeprecationWarning")


class Halves(nn.Module):
    """Adds what it unpools without output_size, and so takes even sizes only."""

    def forward(self, x):
        return nn.functional.max_unpool2d(*nn.functional.max_pool2d(x, 2, return_indices=True), 2) + x


class Baked(nn.Module):
    """Unpools to the size of the example, for a traced size that becomes an int is a constant."""

    def forward(self, x):
        y, indices = nn.functional.max_pool2d(x, 2, return_indices=True)
        return nn.functional.max_unpool2d(y, indices, 2, output_size=[int(size) for size in x.shape[2:]])


def sizes(value):
    """Sizes of an input or output of a program."""
    return [size if isinstance(size, int) else size.value for size in value.shape]


@pytest.mark.sample(2)
@pytest.mark.parametrize("example", [(48, 64), (45, 61)])
def test_a_dim_stays_open(example):
    """A named Dim gives a file for every size from the model's smallest to its own largest, whatever the example."""
    shapes = ({2: Dim("height"), 3: Dim("width", min=9, max=512)},)
    program = export(Levels().eval(), (noise(1, 1, *example),), dynamic_shapes=shapes, verbose=False)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    own = unpool.InferenceSession(program.model_proto.SerializeToString())
    ranges = program.exported_program.range_constraints.values()
    assert sizes(program.model.graph.inputs[0]) == sizes(program.model.graph.outputs[0]) == [1, 1, "height", "width"]
    assert {(int(one.lower), str(one.upper)) for one in ranges} == {(8, "int_oo"), (9, "512")}
    for height, width in ((45, 61), (8, 9), (50, 33)):
        x = noise(1, 1, height, width)
        for one in (session, own):
            (y,) = one.run(None, {one.get_inputs()[0].name: x.numpy()})
            np.testing.assert_array_equal(y, Levels()(x).numpy())


def test_multiples_are_refused_where_a_dim_promises_more():
    """A model for even sizes only is refused for a Dim, taken for a multiple, and said for a string."""
    model, example = Halves().eval(), (noise(1, 2, 12, 10),)
    words = r"lets height be .* takes 2, 4, 6 .* write 2 \* torch.export.Dim"
    with pytest.raises(unpool.UnsupportedError, match=words):
        export(model, example, dynamic_shapes=({2: Dim("height")},), verbose=False)
    with pytest.warns(UserWarning, match="lets rows be any size, the model takes 2, 4, 6") as caught:
        export(model, example, dynamic_shapes=({2: "rows"},), verbose=False)
    assert [one.filename for one in caught if "lets rows" in str(one.message)] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        program = export(model, example, dynamic_shapes=({2: 2 * Dim("half")},), verbose=False)
    assert sizes(program.model.graph.inputs[0]) == [1, 2, "2*half", 10]


class Padded(nn.Module):
    """Repeats the last row of what it grows from an odd number of rows."""

    def forward(self, x):
        y = nn.functional.interpolate(nn.functional.max_pool2d(x, 2), scale_factor=2.0)
        return x + nn.functional.pad(y, (0, 0, 0, int(x.shape[2] != y.shape[2])), "replicate")


class Limited(nn.Module):
    """Adds one of nine numbers to every row."""

    def forward(self, x):
        return x + torch.arange(9.0)[: x.shape[2]].view(-1, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "example", "dims", "advice"),
    [
        (Unsized(), (16, 24), {2: Dim("h"), 3: Dim("w")}, {2: 8 * Dim("h"), 3: 8 * Dim("w")}),
        (Unsized(), (16, 24), {2: 2 * Dim("h")}, {2: 8 * Dim("h")}),
        (Unsized(), (17, 24), {2: Dim("h", max=70), 3: 8 * Dim("w")}, {2: 8 * Dim("h", max=8) + 1, 3: 8 * Dim("w")}),
        (Padded(), (35, 44), {2: Dim("h")}, {2: 2 * Dim("h") + 1}),
    ],
)
def test_the_advice_for_dims_works(model, example, dims, advice):
    """What the error says to write is exported; it names every Dim that is refused, with its offset and its bounds."""
    x = noise(1, 1, *example)
    with pytest.raises(unpool.UnsupportedError, match="rite ") as caught:
        export(model.eval(), (x,), dynamic_shapes=(dims,), verbose=False)
    code = str(caught.value).partition("rite ")[2].partition(", as ")[0]
    written = {dim.__name__ for dim in (eval(each, {"torch": torch}) for each in code.split(" and "))}
    assert written == {dim.__name__ for axis, dim in advice.items() if dim.__name__ != dims.get(axis).__name__}
    assert "max=8" in code if example[0] == 17 else "max" not in code
    program = export(model.eval(), (x,), dynamic_shapes=(advice,), verbose=False)
    names = [str(size) for size in sizes(program.model.graph.inputs[0])[2:]]
    assert names == [advice[axis].__name__ if axis in advice else str(example[axis - 2]) for axis in (2, 3)]


@pytest.mark.slow
def test_no_advice_that_does_not_work():
    """Without a form that works, the error names a size that the model does not take."""
    with pytest.raises(unpool.UnsupportedError, match=r"the model does not take 10\. Fix the size\.$"):
        export(Limited().eval(), (noise(1, 1, 7, 4),), dynamic_shapes=({2: Dim("h")},), verbose=False)


def test_axes_without_a_name_get_a_plain_one():
    """An axis that is dynamic by a hint is called after its input, and an axis computed from it too."""
    options = {"dynamic_shapes": ({2: Dim.DYNAMIC},), "input_names": ["x"], "verbose": False}
    program = export(nn.MaxPool2d((3, 1)).eval(), (noise(1, 1, 9, 4),), **options)
    assert sizes(program.model.graph.inputs[0]) == [1, 1, "x_dim_2", 4]
    assert "x_dim_2" in sizes(program.model.graph.outputs[0])[2]


@pytest.mark.slow
@pytest.mark.parametrize("dynamo", [True, False])
def test_verify_refuses_promises_that_the_module_does_not_keep(dynamo):
    """A name of an axis is a promise of every size; a module that takes multiples of 8 does not keep it."""
    options = {"dynamic_shapes": ({2: "rows"},)} if dynamo else {"dynamic_axes": {"x": {2: "rows"}}}
    call = {"dynamo": dynamo, "verify": True, "verbose": False, "input_names": ["x"]} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(unpool.UnpoolError, match=r"does not take rows=1[578]\. .*8rows in"):
            export(Unsized().eval(), (noise(1, 1, 16, 24),), io.BytesIO(), **call)


def test_dims_that_do_not_fit_the_example():
    """One Dim for two sizes, and an example out of range, are one line before anything is traced."""
    both, small = Dim("side"), Dim("rows", max=8)
    for shapes, message in (
        (({2: both, 3: both},), "one Dim side for axes of 12 and 10 elements"),
        (({2: small},), "lets rows be 0 to 8, the example has 12"),
    ):
        with pytest.raises(unpool.UnpoolError, match=message) as caught:
            export(Levels().eval(), (noise(1, 2, 12, 10),), dynamic_shapes=shapes)
        assert "\n" not in str(caught.value)


class Nest(nn.Module):
    """Tensors in a dict and a list."""

    def forward(self, named, listed=None):
        return named["x"] + listed[0], listed[1]


def test_dims_anywhere_in_a_nest():
    """Dims become hints with their bounds in dicts, lists and tuples; everything else stays as it is."""
    x, y, z = (torch.ones(6, 4) for _ in range(3))
    rows, columns = Dim("rows", min=2), Dim("columns", max=9)
    shapes = {"named": {"x": {0: rows}}, "listed": [(rows, None), [Dim.AUTO, columns]]}
    call = {"model": Nest(), "args": ({"x": x},), "kwargs": {"listed": [y, z]}, "dynamic_shapes": shapes}
    hints, axes = read_dynamic_shapes(call)
    least, most = Dim.DYNAMIC(min=2), Dim.DYNAMIC(max=9)
    assert hints == {"named": {"x": {0: least}}, "listed": [(least, None), [Dim.AUTO, most]]}
    assert [entries for _, entries in axes] == [{0: rows}, {0: rows}, {0: Dim.AUTO, 1: columns}]
    collection = ShapesCollection()
    collection[x] = {0: rows}
    given = {"model": Nest(), "args": ({"x": x}, [y, z]), "dynamic_shapes": collection}
    assert read_dynamic_shapes(given)[1][0][1] == {0: rows}
    derived = ({2: 2 * columns, 3: columns},)
    call = {"model": Levels(), "args": (noise(1, 1, 8, 4),), "dynamic_shapes": derived}
    assert read_dynamic_shapes(call)[0] == derived


@pytest.mark.slow
def test_verify_runs_the_file_that_was_written(tmp_path, monkeypatch):
    """The file on disk is compared, with its external data, at sizes that are not the example's."""
    seen, run = [], onnxruntime.InferenceSession.run
    spy = lambda self, names, feeds: seen.append(next(iter(feeds.values())).shape) or run(self, names, feeds)  # noqa: E731
    monkeypatch.setattr(onnxruntime.InferenceSession, "run", spy)
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), Levels()).eval()
    shapes = ({2: Dim("height"), 3: Dim("width", max=20)},)
    path = tmp_path / "model.onnx"
    export(model, (noise(1, 1, 16, 20),), path, dynamic_shapes=shapes, verify=True, verbose=False, opset_version=13)
    assert seen[0] == (1, 1, 16, 20)
    assert {(1, 1, 17, 20), (1, 1, 15, 19), (1, 1, 8, 8)} <= set(seen)
    monkeypatch.setattr(torch.onnx.ONNXProgram, "save", lambda program, f, **_: f.write_bytes(wrong))
    wrong = export(Levels().eval(), (noise(1, 1, 16, 20),), verbose=False).model_proto.SerializeToString()
    with pytest.raises(unpool.UnpoolError, match="for the example output 0 is float32"):
        export(model, (noise(1, 1, 16, 20),), path, verify=True, verbose=False)


def test_verify_finds_sizes_that_were_traced_as_constants():
    """dynamo=False keeps an int() as the example's; the error names a size that goes wrong."""
    names = {"input_names": ["x"], "dynamic_axes": {"x": {2: "height", 3: "width"}}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        export(Levels().eval(), (noise(1, 1, 16, 20),), io.BytesIO(), dynamo=False, verify=True, **names)
        with pytest.raises(unpool.UnpoolError, match="for sizes height=17, width=21 "):
            export(Baked().eval(), (noise(1, 1, 16, 20),), io.BytesIO(), dynamo=False, verify=True, **names)


@pytest.mark.slow
def test_what_cannot_be_verified(monkeypatch):
    """A file that onnxruntime does not load, one without weights, and no onnxruntime are errors that say so."""
    call = {"model": RoundTrip(2, True, 2).eval(), "args": (noise(1, 1, 4, 4),), "verify": True, "verbose": False}
    double = call | {"args": (noise(1, 1, 4, 4).double(),)}
    with pytest.raises(unpool.UnsupportedError, match="expects a file that onnxruntime loads"):
        export(**double)
    with pytest.raises(unpool.UnsupportedError, match="Leave out export_params=False"):
        export(**call, export_params=False)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install '\.\[run\]'"):
        export(**call)
