"""Tests of operators are small, and are to reach ours, which leave small calls to torch."""

import warnings

import pytest
import torch

from unpool.torch.ops import conv_transpose, max_pool, max_unpool


@pytest.fixture(autouse=True)
def _calls_are_ours(monkeypatch):
    for module in (conv_transpose, max_pool, max_unpool):
        monkeypatch.setattr(module, "is_small", lambda *_: False)


@pytest.fixture(autouse=True)
def _seeded():
    """The same random numbers for every test, and one thread: tensors are small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(5)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def quiet():
    """Torch warns about its own internals; that is not what these tests watch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
