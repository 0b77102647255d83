"""Tests of operators are small, and are to reach ours, which leave small calls to torch."""

import pytest

from unpool.torch.ops import conv_transpose, max_pool, max_unpool


@pytest.fixture(autouse=True)
def _calls_are_ours(monkeypatch):
    for module in (conv_transpose, max_pool, max_unpool):
        monkeypatch.setattr(module, "is_small", lambda *_: False)
