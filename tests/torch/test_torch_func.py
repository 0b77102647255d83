"""Transforms of torch.func and forward mode: our operators give what torch's own give, nested ones too."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap

import unpool
import unpool.torch as ours

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning"),  # inside torch.func
    pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning"),  # torch has no rule for max_unpool3d
]
FAMILIES = ("pool", "indexed pool", "unpooling", "convolution", "grouped convolution")


def functions(module, family, rank):
    """A function of float64 tensors made of the functions of a module: torch.nn.functional or ours."""
    pool, unpooling, conv = (getattr(module, f"{kind}{rank}d") for kind in ("max_pool", "max_unpool", "conv_transpose"))

    def round_trip(x):
        y, indices = pool(x, 2, return_indices=True)
        return unpooling(y * y, indices, 2)

    return {
        "pool": lambda x: pool(x, 3, 2, 1),
        "indexed pool": lambda x: pool(x, 3, 2, 1, return_indices=True)[0],
        "unpooling": round_trip,
        "convolution": lambda x, w, b: conv(x, w, b, 2, 1, 1),
        "grouped convolution": lambda x, w, b: conv(x, w, b, 2, groups=2, dilation=2),
    }[family]


def inputs(family, rank):
    """What `functions` take."""
    x = torch.randn(1, 2, *[4 if rank < 3 else 2] * rank, dtype=torch.float64)
    if "convolution" not in family:
        return (x,)
    maps = 2 if family == "convolution" else 4
    return x, torch.randn(2, 2, *[2] * rank, dtype=torch.float64), torch.randn(maps, dtype=torch.float64)


def cubed(function):
    """A scalar whose second derivatives are not constant."""
    return lambda *x: function(*x).pow(3).sum()


def twice(x):
    """Two different tensors, stacked."""
    return torch.stack([x, 2 * x.flip(-1)])


def stacks(xs):
    return tuple(twice(x) for x in xs)


TRANSFORMS = {
    "grad": lambda f, xs: grad(cubed(f), tuple(range(len(xs))))(*xs),
    "vmap": lambda f, xs: vmap(f)(*stacks(xs)),
    "vmap of one input": lambda f, xs: vmap(f, (0, *[None] * (len(xs) - 1)))(twice(xs[0]), *xs[1:]),
    "vmap of the last input": lambda f, xs: vmap(f, (*[None] * (len(xs) - 1), 0))(*xs[:-1], twice(xs[-1])),
    "vmap inside": lambda f, xs: vmap(f, -1, 1)(*(x.movedim(0, -1) for x in stacks(xs))),
    "vmap twice": lambda f, xs: vmap(vmap(f))(*stacks(stacks(xs))),
    "gradients of samples": lambda f, xs: vmap(grad(cubed(f)))(*stacks(xs)),
    "jacrev": lambda f, xs: jacrev(f, tuple(range(len(xs))))(*xs),
    "jacfwd": lambda f, xs: jacfwd(f, tuple(range(len(xs))))(*xs),
    "jvp": lambda f, xs: jvp(f, xs, tuple(map(torch.cos, xs))),
    "hessian": lambda f, xs: hessian(cubed(f), len(xs) - 1)(*xs),
    "jacfwd of jacfwd": lambda f, xs: jacfwd(jacfwd(cubed(f)))(*xs),
    "jacrev of jacrev": lambda f, xs: jacrev(jacrev(cubed(f)))(*xs),
    "jacrev of jacfwd": lambda f, xs: jacrev(jacfwd(cubed(f)))(*xs),
}


def leaves(found):
    return [each for one in found for each in leaves(one)] if isinstance(found, tuple) else [found]


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_transforms(rank, family, transform):
    """Every transform, and every pair of them, gives what it gives for torch's own operators."""
    xs = inputs(family, rank)
    mine, theirs = (TRANSFORMS[transform](functions(module, family, rank), xs) for module in (ours, F))
    for found, expected in zip(leaves(mine), leaves(theirs), strict=True):
        torch.testing.assert_close(found, expected)
        assert expected.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_tangents_of_narrow_types(dtype):
    """Tangents of pools and unpoolings are selections, equal to torch's in every type."""
    x, tangent = torch.randn(2, 3, 5, 7).to(dtype), torch.randn(2, 3, 5, 7).to(dtype)
    for family in ("pool", "indexed pool"):
        pairs = [jvp(functions(module, family, 2), (x,), (tangent,)) for module in (ours, F)]
        assert all(torch.equal(*pair) for pair in zip(*pairs, strict=True))


def test_dual_numbers():
    """A dual number keeps its tangent through a pool, an unpooling and a convolution, gradients on top included."""
    x, w = torch.randn(1, 2, 4, 4, requires_grad=True), torch.randn(2, 1, 2, 2, requires_grad=True)
    tangent, found = torch.randn(1, 2, 4, 4), []
    for module in (ours, F):
        with forward_ad.dual_level():
            y, indices = module.max_pool2d(forward_ad.make_dual(x, tangent), 2, return_indices=True)
            z = module.conv_transpose2d(module.max_unpool2d(y, indices, 2), w)
            pushed = forward_ad.unpack_dual(z).tangent
            found.append((pushed, *torch.autograd.grad(pushed.square().sum(), w)))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_windows_that_see_only_padding_have_no_tangent():
    """Where a pool finds no element there is nothing to push."""
    x = torch.ones(1, 2, 2)
    y, pushed = jvp(lambda x: ours.max_pool2d(x, 2, 1, 1, 3), (x,), (x,))
    assert (y.item(), pushed.item()) == (-float("inf"), 0)


def test_batches_of_indices():
    """Values and indices may each be one for all calls; an index out of its plane is still refused."""
    x, indices = torch.randn(2, 1, 3), torch.tensor([[[0, 2, 4]], [[5, 1, 3]]])
    for places in ((0, 0), (0, None), (None, 0)):
        given = [one if place == 0 else one[0] for one, place in zip((x, indices), places, strict=True)]
        mine, theirs = (vmap(lambda x, i, f=f: f(x, i, 2), places)(*given) for f in (ours.max_unpool1d, F.max_unpool1d))
        assert torch.equal(mine, theirs)
    with pytest.raises(unpool.IndicesError, match="index: 4 at"):
        vmap(lambda x, i: ours.max_unpool1d(x, i, 1))(x, indices)


def test_ensembles():
    """Accelerated models with stacked parameters run as one under vmap."""
    nets = [torch.nn.Sequential(torch.nn.ConvTranspose2d(2, 3, 2, 2), torch.nn.MaxPool2d(2)) for _ in range(3)]
    x, expected = torch.randn(1, 2, 3, 5), None
    expected = torch.stack([net(x) for net in nets])
    for net in nets:
        ours.accelerate(net)
    stacked, _ = torch.func.stack_module_state(nets)
    found = vmap(lambda parameters: functional_call(nets[0], parameters, (x,)))(stacked)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("transform", ["grad", "vmap", "jvp"])
def test_compiled_transforms(transform):
    """torch.compile traces transforms of our operators without a graph break."""
    function, xs = functions(ours, "unpooling", 2), inputs("unpooling", 2)
    compiled = torch.compile(lambda *xs: TRANSFORMS[transform](function, xs), backend="aot_eager", fullgraph=True)
    for found, expected in zip(leaves(compiled(*xs)), leaves(TRANSFORMS[transform](function, xs)), strict=True):
        torch.testing.assert_close(found, expected)
    torch._dynamo.reset()
