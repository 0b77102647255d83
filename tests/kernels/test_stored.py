"""What outlives a process, written by several versions that are killed or out of space."""

import os
import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows does not kill a process at a byte that it writes")
def test_no_version_gets_what_another_one_stored():
    """Wherever writing ended, machine code and choices are those of the sources; a short form of the campaign.

    It forks its rounds from a process of its own, whose caches no other test has filled.
    """
    command = [sys.executable, "-m", "tools.campaigns.stored", "--count", "24", "--seed", "3"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "killed" in run.stdout
    assert run.stdout.endswith("24 rounds, 0 wrong\n")
