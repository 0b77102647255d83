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
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-10)], ids=str)
def test_networks_give_what_torch_gives(exported, name, dtype, tolerance):
    """As exported; in float64, which onnxruntime refuses for a Conv, the session says once that the reference helps."""
    network, x, model = exported(name, dtype)
    y, caught = run(model, x)
    expected = network(x).detach().numpy()
    assert y.dtype == expected.dtype
    assert len(caught) == (dtype == torch.float64 and any(node.op_type == "Conv" for node in model.graph.node))
    np.testing.assert_allclose(y, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())
