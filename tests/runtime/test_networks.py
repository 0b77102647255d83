"""Whole networks: what torch computes, unpool computes from the exported file, on the operators it claims."""

import warnings

import numpy as np
import pytest
import torch

import unpool
from tests.support import networks


@pytest.fixture(scope="module")
def exported():
    """Build and export each network once: (name, type) -> network, input, model."""
    made = {}

    def get(name, dtype=torch.float32):
        if (name, dtype) not in made:
            network, x = networks.build(name, dtype)
            made[name, dtype] = network, x, networks.export(network, x)
        return made[name, dtype]

    return get


def run(model, x):
    """The output of the session, and the warnings on the way to it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (y,) = unpool.InferenceSession(model.SerializeToString()).run(None, {"x": x.numpy()})
    return y, caught


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", networks.BUILDERS)
def test_float32_networks_give_what_torch_gives(exported, name):
    """Every network of the field runs as exported, without a warning, within 1e-4 of torch."""
    network, x, model = exported(name)
    y, caught = run(model, x)
    expected = network(x).detach().numpy()
    assert y.dtype == np.float32
    assert not caught
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", networks.BUILDERS)
def test_float64_networks_give_what_torch_gives(exported, name):
    """float64, which onnxruntime refuses, runs to 1e-10; the session says once that the reference helps."""
    network, x, model = exported(name, torch.float64)
    y, caught = run(model, x)
    expected = network(x).detach().numpy()
    assert y.dtype == np.float64
    needs_reference = any(node.op_type == "Conv" for node in model.graph.node)
    assert len(caught) == needs_reference
    np.testing.assert_allclose(y, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max())
