"""PyTorch's own samples for the nine functions pass through our operators: values, indices, memory formats, gradients.

Pools and unpoolings agree bit for bit; sums agree to the rounding of their type with torch's in float64.
"""

import warnings
from itertools import islice

import pytest
import torch

import unpool
import unpool.torch as ours
from tests.support.runners import as_tuple

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyTorch's test internals use what they deprecate
    from torch.testing._internal.common_methods_invocations import op_db

NAMES = [f"{kind}{rank}d" for kind in ("max_pool", "max_unpool", "conv_transpose") for rank in (1, 2, 3)]
INFOS = [info for info in op_db if info.name.removeprefix("nn.functional.") in NAMES]
REFUSED = (torch.int64, torch.complex64, torch.complex128)
"""Types for which torch has a transposed convolution and we have none."""

EVERY = 7
"""Of types other than float32 one sample in so many runs: they share all code but the type. No setting has a period
that divides it."""


def accepted(info, dtype):
    return not (info.name.startswith("nn.functional.conv") and dtype in REFUSED)


def cases(keep):
    return [
        pytest.param(info, dtype, id=f"{info.formatted_name}-{str(dtype).removeprefix('torch.')}")
        for info in INFOS
        for dtype in sorted(info.dtypes, key=str)
        if keep(info, dtype)
    ]


def function_of(info):
    return getattr(ours, info.name.removeprefix("nn.functional."))


def in_float64(x):
    """A float tensor widened, a gradient leaf if `x` is one; anything else unchanged."""
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        return x
    return x.detach().double().requires_grad_(x.requires_grad)


def check_sums(found, exact, magnitude):
    """`found` is `exact` up to one rounding to its type and the rounding of sums in float32 or float64."""
    sums = torch.finfo(torch.float64 if found.dtype == torch.float64 else torch.float32).eps
    allowed = exact.abs() * torch.finfo(found.dtype).eps + magnitude * 8 * sums + torch.finfo(found.dtype).tiny
    assert found.shape == exact.shape
    assert bool(((found.double() - exact).abs() <= allowed).all())


def check_pool(info, sample):
    """Values, indices and strides are torch's; gradients too, up to one rounding."""
    found = as_tuple(function_of(info)(sample.input, *sample.args, **sample.kwargs))
    expected = as_tuple(info.op(sample.input, *sample.args, **sample.kwargs))
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.equal(mine, theirs)
        assert mine.stride() == theirs.stride() or mine.numel() < 2
    if sample.input.requires_grad:
        wide = in_float64(sample.input)
        weights = torch.randn_like(found[0])
        (mine,) = torch.autograd.grad(found[0], sample.input, weights)
        exact = as_tuple(info.op(wide, *sample.args, **sample.kwargs))[0]
        (theirs,) = torch.autograd.grad(exact, wide, weights.double(), retain_graph=True)
        (magnitude,) = torch.autograd.grad(exact, wide, weights.double().abs())
        check_sums(mine, theirs, magnitude)


def check_convolution(info, sample):
    """Sums are torch's in float64 up to rounding; gradients are torch's own."""
    inputs = [sample.input, *sample.args]
    found = function_of(info)(*inputs, **sample.kwargs)
    wide = [in_float64(each) for each in inputs]
    sizes = [None if each is None else each.abs() for each in wide]
    check_sums(found, info.op(*wide, **sample.kwargs), info.op(*sizes, **sample.kwargs))
    leaves = [each for each in inputs if each is not None]
    weights = torch.randn_like(found)
    theirs = info.op(*inputs, **sample.kwargs)
    pairs = zip(*(torch.autograd.grad(y, leaves, weights) for y in (found, theirs)), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)


@pytest.mark.sample(5)
@pytest.mark.parametrize(("info", "dtype"), cases(accepted))
def test_samples(info, dtype):
    """Every sample in float32, and a part of them in every other type, gives what torch gives."""
    check = check_convolution if info.name.startswith("nn.functional.conv") else check_pool
    is_few = info.name.startswith("nn.functional.conv") or info.variant_test_name
    step = 1 if dtype == torch.float32 or is_few else EVERY
    samples = info.sample_inputs("cpu", dtype, requires_grad=dtype.is_floating_point)
    count = 0
    for sample in islice(samples, 0, None, step):
        check(info, sample)
        count += 1
    assert count > 5


@pytest.mark.parametrize(("info", "dtype"), cases(lambda info, dtype: not accepted(info, dtype)))
def test_refused_types(info, dtype):
    """A type that we do not have is an error that lists those we have."""
    for sample in info.sample_inputs("cpu", dtype):
        with pytest.raises(unpool.UnpoolError, match="input expects one of float16, bfloat16, float32, float64; got"):
            function_of(info)(sample.input, *sample.args, **sample.kwargs)


@pytest.mark.sample(3)
@pytest.mark.parametrize("info", [info for info in INFOS if info.error_inputs_func], ids=lambda info: info.name)
def test_error_samples(info):
    """What torch's own samples say must fail fails, as the error that torch raises and as an UnpoolError."""
    for wrong in info.error_inputs("cpu"):
        sample = wrong.sample_input
        with pytest.raises(wrong.error_type) as caught:
            function_of(info)(sample.input, *sample.args, **sample.kwargs)
        assert isinstance(caught.value, unpool.UnpoolError)
