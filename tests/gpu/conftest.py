"""What tests on a GPU, or in Triton's interpreter, begin and end with."""

import pytest
import torch

from tests.support.gpu import routed
from unpool.execute.gpu import index_checks


@pytest.fixture
def on_gpu():
    """Tensors of DEVICE go to the kernels in Triton; the same random numbers for every test."""
    torch.manual_seed(3)
    with routed():
        yield


@pytest.fixture
def none_pending():
    """No result of a check is awaited, before and after."""
    index_checks._pending.clear()
    yield
    index_checks._pending.clear()
