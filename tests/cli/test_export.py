"""`unpool export`: a module of the user's into a file, what the file says, and what is refused before it is written."""

import io
import json
import textwrap
import time

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import unpool
from unpool.cli.app import app
from unpool.cli.stages import stages
from unpool.torch import example

NETS = """
    from torch import nn
    from tests.support.networks import Unsized

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.pool = nn.MaxPool2d(2, return_indices=True)
            self.unpool = nn.MaxUnpool2d(2)
            self.grow = nn.ConvTranspose2d(1, 1, 2, stride=2)

        def forward(self, x):
            y, indices = self.pool(x)
            return self.unpool(y, indices, output_size=x.shape[2:]) + self.grow(y, output_size=x.shape[2:])

    class Halves(nn.Module):
        def forward(self, x):
            return nn.functional.max_unpool2d(*nn.functional.max_pool2d(x, 2, return_indices=True), 2) + x

    class Odd(nn.Module):
        def forward(self, x):
            if x.shape[2] % 8 != 1:
                raise ValueError("9, 17, 25 and so on")
            return x + 1

    class Pools(nn.Module):
        def forward(self, x):
            return nn.functional.max_pool2d(x, (2, 1))

    def broken():
        raise OSError("no weights here")

    table = {"a": 1}
"""


@pytest.fixture
def here(here):
    """A folder with a file of modules."""
    (here / "user_nets.py").write_text(textwrap.dedent(NETS))
    return here


def invoke(*words):
    return CliRunner().invoke(app, ["export", *words, "-o", "net.onnx"])


def test_any_batch_height_and_width(here):
    """The file takes what torch takes, odd sizes and a ConvTranspose to a given size too, and has the metadata."""
    words = ("--scale", "1/255", "--std", "0.2", "--classes", "sky,tree", "--palette", "#000000,#E69F00")
    done = invoke("user_nets.py:Net", "--example", "image=1x1xHxW", "--dynamic", *words, "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["inputs"] == ["image batchx1xHxW float32"]
    shapes = [tuple(one[0]) for one in said["compared"]]
    assert shapes[0] == (2, 1, 64, 96)
    assert {size % 2 for shape in shapes for size in shape[2:]} == {0, 1}
    assert (1, 1, 2, 2) in shapes
    model = onnx.load("net.onnx")
    assert {one.key: one.value for one in model.metadata_props}.items() >= {
        "unpool.input_scale": "1/255",
        "unpool.input_std": "0.2",
        "classes": "sky,tree",
        "unpool.palette": "#000000,#e69f00",
    }.items()
    session = unpool.InferenceSession("net.onnx")
    assert session.run(None, {"image": np.zeros((3, 1, 7, 9), np.float32)})[0].shape == (3, 1, 7, 9)


@pytest.mark.slow
@pytest.mark.parametrize("example", ["1x1xHxW", "1x1xHx2W", "1x1x2HxW"])
def test_the_advice_for_sizes_works(here, example):
    """A module for even sizes only is refused for any size, with the text that works for every axis."""
    refused = invoke("user_nets.py:Halves", "--example", example)
    assert (refused.exit_code, (here / "net.onnx").exists()) == (4, False)
    assert all(text in refused.stderr for text in ("2H", "2W") if text not in example)
    done = invoke("user_nets.py:Halves", "--example", "1x1x2Hx2W")
    assert done.exit_code == 0, done.output
    assert "input 1x1x2*Hx2*W float32" in done.stdout
    assert "1x1x66x98" in done.stdout


@pytest.mark.slow
def test_the_advice_for_odd_sizes_works(here):
    """A module for odd sizes only is refused for any size, with the text of odd sizes."""
    refused = invoke("user_nets.py:Odd", "--example", "1x1x2H+1x8")
    assert refused.exit_code == 4
    assert "8H+1 in the text" in refused.stderr
    assert invoke("user_nets.py:Odd", "--example", "1x1x8H+1x8").exit_code == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*legacy Torch:DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("more", [(), ("--no-dynamo",)])
def test_every_promised_size_is_tried(here, more):
    """A module for multiples of 8 is refused for even sizes, though some of these are multiples, in both exporters."""
    refused = invoke("user_nets.py:Unsized", "--example", "1x1x2Hx8W", *more)
    assert (refused.exit_code, (here / "net.onnx").exists()) == (4 if more == () else 3, False)
    assert "8H in the text of an example" in refused.stderr
    done = invoke("user_nets.py:Unsized", "--example", "1x1x8Hx8W", *more)
    assert done.exit_code == 0, done.output
    assert {"1x1x64x96", "1x1x72x104", "1x1x8x8"} <= set(done.stdout.replace(",", "").split())


@pytest.mark.slow
def test_sizes_that_were_not_compared_are_said(here):
    """Sizes that the module does not take are in the report and in the document; its smallest ones are compared."""
    done = invoke("user_nets.py:Net", "--example", "1x1xHx8", "--json")
    said = json.loads(done.stdout)
    assert said["left_out"] == [[[1, 1, 1, 8]]]
    assert [[1, 1, 2, 8]] in said["compared"]
    done = invoke("user_nets.py:Net", "--example", "1x1xHx8")
    assert "smaller sizes that the module or the file does not take: 1x1x1x8" in done.stdout


def test_no_name_of_torch_is_in_the_file(here):
    """Axes of a file have names of the caller, also in expressions of outputs."""
    done = invoke("user_nets.py:Pools", "--example", "1x1x2Hx8")
    assert done.exit_code == 0, done.output
    outputs = [
        dim.dim_param for value in onnx.load("net.onnx").graph.output for dim in value.type.tensor_type.shape.dim
    ]
    assert [name for name in outputs if name] == ["H"]


@pytest.mark.parametrize("is_terminal", [False, True])
def test_stages_of_an_export_are_shown(is_terminal, monkeypatch):
    """A command says on stderr what it does, on a terminal in one line that disappears, and nothing with --quiet."""
    stream = io.StringIO()
    stream.isatty = lambda: is_terminal
    monkeypatch.setattr("sys.stderr", stream)
    with stages(quiet=False, seconds=0.001) as begin:
        begin("exporting")
        while "exporting, 0 s" not in stream.getvalue():
            time.sleep(0.001)
    assert stream.getvalue().endswith("\x1b[K" if is_terminal else "\n")
    before = stream.getvalue()
    with stages(quiet=True, seconds=0.001) as begin:
        begin("exporting")
    assert stream.getvalue() == before


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("no_such_module:Net", "--example", "1"), 2, "there is no Python module no_such_module here"),
        (("no_such.py:Net", "--example", "1"), 3, "no_such.py: no such Python file"),
        (("user_nets.py:Nut", "--example", "1"), 2, "has no Nut; it has Halves, Net, Odd, Pools, Unsized, broken"),
        (("user_nets.py", "--example", "1"), 2, "expected module:callable"),
        (("user_nets.py:broken", "--example", "1"), 3, "fails with OSError: no weights here"),
        (("user_nets.py:table", "--example", "1"), 3, "expected a torch.nn.Module, got dict"),
        (("user_nets.py:Net", "--example", "1x1xx4"), 3, "expected sizes with x between them"),
        (("user_nets.py:Net", "--example", "1x1x4x4", "--weights", "w.pt"), 3, "w.pt: no such file of weights"),
        (("user_nets.py:Net", "--example", "1x1x4x4", "--scale", "much"), 2, "--scale: expected a number"),
        (("user_nets.py:Net", "--example", "1x1x4x4", "--palette", "red"), 2, "--palette: expected colours"),
        (("user_nets.py:Net", "--example", "1x1x4x4", "--classes", "a", "--palette", "#000000,#111111"), 2, "got 2"),
        (("user_nets.py:Net", "--example", "5"), 3, "torch does not export this module"),
    ],
)
def test_what_is_refused(here, words, code, says):
    """One line that says what was expected, and no file."""
    before = sorted(here.iterdir())
    done = invoke(*words)
    assert done.exit_code == code, done.output
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert says in line
    assert [path for path in sorted(here.iterdir()) if path.name != "__pycache__"] == before


def test_example_texts():
    """Names are open sizes, the same ones are the same, and types are as they are written."""
    found = example("a=2xHx3:int64", "b=Hx8K", dynamic=False)
    assert [tuple(x.shape) for x in found.args] == [(2, 2, 3), (2, 16)]
    assert [str(x.dtype) for x in found.args] == ["torch.int64", "torch.float32"]
    assert found.dynamic_axes == {"a": {1: "H"}, "b": {0: "H", 1: "8*K"}}
    assert example("1x3x8x8").dynamic_shapes is None
    with pytest.raises(unpool.UnpoolError, match="inputs of different names, got a, a"):
        example("a=1", "a=2")
