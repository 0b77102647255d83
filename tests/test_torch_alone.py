"""What unpool.torch does without packages and private names that it can do without."""

import subprocess
import sys

import pytest

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
NO_PRIVATE_NAMES = """
import sys, types, warnings
warnings.simplefilter("ignore")
sys.modules["unpool.torch.private"] = types.ModuleType("unpool.torch.private")
sys.modules["unpool.torch.private"].private = lambda name: None
"""
EXPORTS = """
class RoundTrip(torch.nn.Module):
    def forward(self, x):
        y, indices = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
        return torch.nn.functional.max_unpool2d(y, indices, 2)
program = unpool.torch.export(RoundTrip(), (torch.randn(1, 1, 4, 4),), verbose=False)
assert [node.op_type for node in program.model_proto.graph.node] == ["MaxPool", "MaxUnpool"]
"""
REFUSED = """
import pytest, unpool
with pytest.raises(unpool.UnsupportedError, match="max_pool1d: expected tensors without tangents"):
    torch.func.jvp(lambda x: unpool.torch.max_pool1d(x, 2), *[(torch.ones(1, 4),)] * 2)
with pytest.raises(unpool.UnsupportedError, match="Export with dynamo=True"):
    unpool.torch.export(torch.nn.MaxPool1d(2), (torch.ones(1, 1, 4),), "unwritten.onnx", dynamo=False)
"""


def run(code):
    """A fresh interpreter that runs the code."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def last_line(done):
    """What a failed interpreter says."""
    assert done.returncode == 1, done.stderr
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(("package", "use"), [("torch", ""), ("onnxscript", ".export")])
def test_missing_package_names_the_extra(package, use):
    """Without a package, what needs it fails with one sentence that says what to install."""
    done = run(f"import sys; sys.modules[{package!r}] = None; import unpool.torch; unpool.torch{use}")
    assert last_line(done) == (
        f"ModuleNotFoundError: unpool.torch{use}: expected the package {package}, it is not installed. "
        "Run: pip install 'unpool[torch]'"
    )


def test_operators_need_torch_alone():
    """Operators train without onnx, onnxscript and onnxruntime, and importing them asks for none of these."""
    missing = "import sys; " + "".join(
        f"sys.modules[{name!r}] = None; " for name in ("onnx", "onnxscript", "onnxruntime")
    )
    done = run(missing + TRAINS)
    assert done.returncode == 0, done.stderr


def test_no_private_name_of_torch_is_needed():
    """Without any private name operators import, train and map, and models export; what is missed is refused."""
    done = run(NO_PRIVATE_NAMES + TRAINS + EXPORTS + REFUSED)
    assert done.returncode == 0, done.stderr


def test_private_names_are_written_down():
    """A name that the table does not explain is not looked up; one that is gone is None."""
    from unpool.torch.private import WITHOUT, private

    assert all(private(name) is not None for name in WITHOUT)
    with pytest.raises(LookupError, match="Write there what it is for"):
        private("torch._C._unheard_of")
