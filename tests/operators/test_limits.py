"""Sizes that no machine has, and machines that have little: every call ends with a result or an error of ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

resource = pytest.importorskip("resource", reason="this system has no limit on addresses")
if not Path("/proc/self/statm").is_file():
    pytest.skip("this system does not say how many addresses are in use", allow_module_level=True)

PROBE = Path(__file__).parents[1] / "support" / "limits_probe.py"
IMPOSSIBLE = "ShapeError"


def probe(which: str) -> list[tuple[str, str, int]]:
    """Name, outcome and MiB of every call, none of which may take the process down, or minutes."""
    plain = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}  # free means free
    done = subprocess.run([sys.executable, PROBE, which], capture_output=True, text=True, timeout=300, env=plain)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-2000:]
    return [(name, said, int(grown)) for name, said, grown in (line.split("\t") for line in done.stdout.splitlines())]


def test_hostile_sizes() -> None:
    """What is beyond memory is refused before it is worked out, what is not takes a few bytes for each element."""
    outcomes = probe("hostile")
    assert len(outcomes) > 50
    for name, _, grown in outcomes:
        assert grown < 150, f"{name} took {grown} MiB"
    for name, said, _ in outcomes:
        if any(word in name for word in ("giant", "overflow", "pads both", "strides both", "shape both")):
            assert said == IMPOSSIBLE, name


def test_memory_that_runs_out_in_a_call() -> None:
    """With less and less memory, ordinary calls of every way give what they gave, or say that it is not enough."""
    expected: dict[str, str] = {}
    refused = set()
    for name, said, _ in probe("ordinary"):
        assert said in (expected.setdefault(name, said), IMPOSSIBLE), name
        refused |= {name} if said == IMPOSSIBLE else set()
    assert IMPOSSIBLE not in expected.values()
    assert refused, "no limit was felt"
