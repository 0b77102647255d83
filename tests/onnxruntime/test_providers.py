"""With another provider than that of the CPU, unpool computes what that lacks."""

import numpy as np
import pytest

from tests.support import models
from unpool.onnxruntime import InferenceSession
from unpool.onnxruntime.package import onnxruntime
from unpool.onnxruntime.placement import Reason

CUDA = ["CUDAExecutionProvider", "CPUExecutionProvider"]


@pytest.fixture
def device(monkeypatch):
    """An onnxruntime that says that it has CUDA; it runs on the CPU, and warns."""
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: CUDA)


@pytest.mark.filterwarnings("ignore:Specified provider")
@pytest.mark.parametrize("providers", [CUDA, [("CUDAExecutionProvider", {"device_id": "0"}), "CPUExecutionProvider"]])
def test_only_max_unpool_leaves_the_device(device, providers):
    """A MaxPool, or a ConvTranspose, on the CPU would cost copies."""
    model, x = models.segnet(), models.random(1, 3, 12, 10)
    session = InferenceSession(model, providers=providers)
    reasons = {row.operator: row.reason for row in session.plan}
    assert reasons == {
        "MaxPool": Reason.PROVIDER, "MaxUnpool": Reason.MAX_UNPOOL, "ConvTranspose": Reason.PROVIDER
    }  # fmt: skip
    (found,), (expected,) = (each.run(None, {"image": x}) for each in (session, InferenceSession(model)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_other_providers_that_are_not_there_change_nothing():
    """The session runs on the CPU, as in onnxruntime."""
    plan = InferenceSession(models.segnet(), providers=CUDA).plan
    assert plan == InferenceSession(models.segnet()).plan


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_set_providers_chooses_again(device):
    """The nodes of the session are those of its providers."""
    session = InferenceSession(models.segnet())
    before = session.plan
    session.set_providers(CUDA)
    assert {row.runner for row in session.plan} == {"unpool", "onnxruntime"}
    session.set_providers(["CPUExecutionProvider"])
    assert session.plan == before
