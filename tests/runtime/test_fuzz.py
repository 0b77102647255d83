"""A short campaign of random and damaged models with a fixed seed, and every file that a longer one found."""

from pathlib import Path

import pytest

from tools.fuzz.actions import ACTIONS, attempt
from tools.fuzz.watch import watch

pytestmark = pytest.mark.slow

FOUND = Path(__file__).parents[1] / "fuzz" / "found"
SEED = 2026
FILES = 250


def test_a_short_campaign_finds_nothing(tmp_path):
    """Random models, and damaged ones, through every reader: errors of unpool only, no crash, ten seconds at most."""
    report = watch(tmp_path, SEED, seconds=600, most=FILES)
    said = [(tmp_path / f"{name}.txt").read_text() for name in report.findings]

    assert not said, "\n\n".join(said)
    assert report.tried >= FILES
    assert report.counts["run: done"] > FILES // 25


@pytest.mark.parametrize("path", sorted(FOUND.glob("*.onnx")), ids=lambda path: path.stem)
@pytest.mark.parametrize("action", ACTIONS)
def test_found_files_stay_harmless(path, action):
    """What was found once ends in a result or in an error of unpool."""
    attempt(action, path.read_bytes())
