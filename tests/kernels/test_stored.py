"""What outlives a process, written by several versions that are killed or out of space."""

import logging
import os

import pytest

from tests.campaigns import stored as campaign


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows does not kill a process at a byte that it writes")
def test_no_version_gets_what_another_one_stored(monkeypatch):
    """Wherever writing ended, machine code and choices are those of the sources; a short form of the campaign."""
    monkeypatch.setenv("UNPOOL_KERNELS", "compiled")
    monkeypatch.setattr(logging.getLogger("unpool"), "level", logging.WARNING)
    tally, failed = campaign.campaign(24, seed=3)
    assert not failed
    assert any(ending.endswith("killed") for ending in tally)
