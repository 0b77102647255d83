"""Passes that do not ask what they save."""

import pytest

from unpool.passes import convert_conv, fuse_snake, reduce_strength


@pytest.fixture
def every_size(monkeypatch):
    """Nodes of the small sizes of tests are replaced."""
    monkeypatch.setattr(convert_conv, "_pays", lambda *_: True)
    for each in (fuse_snake, reduce_strength):
        monkeypatch.setattr(each, "LEAST_SIZE", 0)
