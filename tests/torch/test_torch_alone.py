"""What unpool.torch does without packages and private names that it can do without."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.export import Dim

from unpool.torch import compat as private_names
from unpool.torch.compat import ATTRIBUTE_FALLBACKS, FALLBACKS, FAST_PATH, FORWARD_MODE
from unpool.torch.exporting.dynamic_shapes import inputs_of

pytestmark = pytest.mark.slow

TRAINS = """
import torch, unpool.torch
net = torch.nn.Sequential(torch.nn.ConvTranspose2d(1, 2, 2), torch.nn.MaxPool2d(2))
assert all(swap.reason is None for swap in unpool.torch.accelerate(net))
net(torch.randn(1, 1, 4, 4, requires_grad=True)).sum().backward()
assert net[0].weight.grad.any()
y, indices = unpool.torch.max_pool1d(torch.randn(1, 2, 4, requires_grad=True), 2, return_indices=True)
unpool.torch.max_unpool1d(y, indices, 2).sum().backward()
assert torch.vmap(lambda x: unpool.torch.max_pool1d(x, 2))(torch.ones(3, 1, 4)).sum() == 6
"""
EXPORTS = """
class RoundTrip(torch.nn.Module):
    def forward(self, x):
        y, indices = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
        return torch.nn.functional.max_unpool2d(y, indices, 2)
example = (torch.randn(1, 1, 4, 4),)
program = unpool.torch.export(RoundTrip(), example, verbose=False)
assert [node.op_type for node in program.model_proto.graph.node] == ["MaxPool", "MaxUnpool"]
"""
LEGACY = """
import io, onnx
file = io.BytesIO()
unpool.torch.export(RoundTrip(), example, file, dynamo=False, verbose=False)
assert [node.op_type for node in onnx.load_from_string(file.getvalue()).graph.node] == ["MaxPool", "MaxUnpool"]
"""
DYNAMIC = """
shapes = ({0: torch.export.Dim("batch")},)
program = unpool.torch.export(RoundTrip(), example, dynamic_shapes=shapes, verbose=False)
assert [node.op_type for node in program.model_proto.graph.node].count("MaxUnpool") == 1
"""
VERIFIES = "unpool.torch.export(RoundTrip(), example, verify=True, verbose=False)"
TANGENTS = "torch.func.jvp(lambda x: unpool.torch.max_pool1d(x, 2), *[(torch.ones(1, 4),)] * 2)"
REFUSABLE = {
    LEGACY: "Export with dynamo=True",
    VERIFIES: "Export without it",
    TANGENTS: "max_pool1d: expected tensors without tangents",
}
WITHOUT_NAMES = """
import importlib.util, os, pathlib, sys, traceback, warnings
warnings.simplefilter("ignore")
place = pathlib.Path(importlib.util.find_spec("unpool").origin).parent / "torch" / "compat.py"

def look_without(gone, asked):
    spec = importlib.util.spec_from_file_location("unpool.torch.compat", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    find, read = module.torch_internal, module.torch_internal_attribute
    module.torch_internal = lambda name: asked.add(name) or (None if name in gone else find(name))
    module.torch_internal_attribute = lambda owner, name: (
        asked.add(name) or (None if name in gone else read(owner, name))
    )
    sys.modules["unpool.torch.compat"] = module

def use_all(uses, refused):
    import pytest, unpool
    for use in uses:
        if use in refused:
            with pytest.raises(unpool.UnsupportedError, match=refused[use]):
                exec(use, globals())
        else:
            exec(use, globals())
"""
OPERATORS = """
import torch, numba
for gone in missing:
    child = os.fork()
    if child == 0:
        try:
            look_without(gone, set())
            use_all(uses, refused)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0, gone
"""
ONE_BY_ONE = """
gone, asked, needed = set(), set(), {}
look_without(gone, asked)
for use in uses:
    asked.clear()
    use_all([use], {})
    needed[use] = set(asked)
for name, refused in cases.items():
    needing = [use for use in uses if name in needed[use]]
    assert needing, f"{name} is not asked for"
    gone.add(name)
    check = torch.nn.functional._check_unpool_output_size
    if name.endswith(check.__name__):
        torch.nn.functional._check_unpool_output_size = lambda *sizes: None  # as in a torch without that check
    try:
        use_all(needing, refused)
    except Exception as error:
        raise AssertionError(name) from error
    torch.nn.functional._check_unpool_output_size = check
    gone.clear()
"""


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("package", "use"), [("torch", ""), ("onnxscript", ".export")])
def test_missing_package_names_the_extra(package, use):
    """Without a package, what needs it fails with one sentence that says what to install."""
    done = run(f"import sys; sys.modules[{package!r}] = None; import unpool.torch; unpool.torch{use}")
    assert done.returncode == 1, done.stderr
    assert done.stderr.strip().splitlines()[-1] == (
        f"unpool.errors.MissingExtraError: unpool.torch{use}: {package} is not installed. "
        "In a clone of unpool, run: pip install '.[torch]'"
    )


def test_operators_need_torch_alone():
    """Operators train without onnx, onnxscript and onnxruntime, and importing them asks for none of these."""
    done = run(f"import sys; sys.modules |= dict.fromkeys(['onnx', 'onnxscript', 'onnxruntime']); {TRAINS}")
    assert done.returncode == 0, done.stderr


def refused_without(name):
    """The uses that unpool refuses where torch lacks a name, as `compat.py` says, each with its message."""
    said = {**FALLBACKS, **ATTRIBUTE_FALLBACKS}[name]
    words = {LEGACY: "dynamo=False is refused", VERIFIES: "verify=True is refused", TANGENTS: "forward mode is refused"}
    return {use: REFUSABLE[use] for use, word in words.items() if word in said}


def given(**values):
    """Values as the first lines of a program."""
    return "".join(f"{name} = {value!r}\n" for name, value in values.items())


@pytest.mark.parametrize(
    ("uses", "refused", "missing"),
    [
        ([TRAINS, EXPORTS, DYNAMIC, *REFUSABLE], REFUSABLE, [[*FALLBACKS, *ATTRIBUTE_FALLBACKS]]),
        ([TRAINS, TANGENTS], {TANGENTS: REFUSABLE[TANGENTS]}, [[name] for name in FORWARD_MODE]),
        ([TRAINS, TANGENTS], {}, [[name] for name in FAST_PATH]),
    ],
    ids=["all at once", "forward mode", "direct calls"],
)
def test_private_names_of_torch_are_not_needed(uses, refused, missing):
    """Operators import, train and map, and models export; what is missed is refused, or goes by the dispatcher."""
    done = run(given(uses=uses, refused=refused, missing=missing) + WITHOUT_NAMES + OPERATORS)
    assert done.returncode == 0, done.stderr
    assert all(refused_without(name) == refused for names in missing if len(names) == 1 for name in names)


def test_private_names_are_missed_one_at_a_time():
    """Where torch lacks one other private name, what asks for it works, or is refused as `compat.py` says."""
    names = [name for name in (*FALLBACKS, *ATTRIBUTE_FALLBACKS) if name not in (*FORWARD_MODE, *FAST_PATH)]
    cases = {name: refused_without(name) for name in names}
    done = run(given(uses=[TRAINS, EXPORTS, DYNAMIC, *REFUSABLE], cases=cases) + WITHOUT_NAMES + ONE_BY_ONE)
    assert done.returncode == 0, done.stderr


def test_private_names_are_written_down():
    """A name that the tables do not explain is not looked up; torch has every name that they explain."""
    assert [name for name in FALLBACKS if private_names.torch_internal(name) is None] == []
    for look in (private_names.torch_internal, lambda name: private_names.torch_internal_attribute(torch, name)):
        with pytest.raises(LookupError, match="Write here what it is for"):
            look("torch._C._unheard_of")


def test_private_attributes_are_there():
    """Torch has every attribute that is read of what it hands out."""
    rows = Dim("rows")
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(4, 2),), dynamic_shapes=({0: rows},))
    (value,) = inputs_of(program)
    node = value.shape[0].node
    from torch.onnx._internal.torchscript_exporter.registration import registry

    owners = {
        "forward_ad": torch.autograd.forward_ad,
        "_SymbolicFunctionGroup": registry.get_function_group("aten::relu"),
        "SymbolicRegistry": registry,
        "SymInt": value.shape[0],
        "SymNode": node,
        "ShapeEnv": node.shape_env,
    }
    for name in ATTRIBUTE_FALLBACKS:
        assert private_names.torch_internal_attribute(owners[name.split(".")[-2]], name) is not None, name


def test_private_names_stand_in_one_file():
    """No other file of the room spells a name of torch that begins with an underscore."""
    room = Path(private_names.__file__).parent
    for path in sorted(room.rglob("*.py")):
        if path.name != "compat.py":
            code = ast.parse(path.read_text())
            spelt = [node.attr for node in ast.walk(code) if isinstance(node, ast.Attribute)]
            spelt += [node.module or "" for node in ast.walk(code) if isinstance(node, ast.ImportFrom)]
            assert [name for name in spelt if re.search(r"(^|\.)_[a-z]", name)] == [], path
