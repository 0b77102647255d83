"""Which tests run by default, and which only when they are asked for."""

import json
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = "tests/browser"
FILE = f"{FOLDER}/test_drawing.py"
COUNT = """
import contextlib, io, json, os, sys
import pytest


class Counter:
    def pytest_collection_finish(self, session):
        self.names = [item.nodeid for item in session.items]


chosen = []
for quarter, arguments in json.loads(sys.argv[1]):
    os.environ["TEST_QUARTER"] = quarter
    counter = Counter()
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *arguments], plugins=[counter])
    chosen.append(counter.names)
print(json.dumps(chosen))
"""


def chosen(*runs):
    """The names of the tests that pytest chooses, for each pair of a quarter and arguments."""
    done = subprocess.run(
        [sys.executable, "-c", COUNT, json.dumps(runs)],
        cwd=ROOT, env={**os.environ, "PYTEST_ADDOPTS": ""}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def test_slow_tests_run_only_when_they_are_asked_for():
    """A folder runs without them, whatever -m says of other markers; `-m slow` and a file that is named run them."""
    by_default, others, slow, named = chosen(
        ("", [FOLDER]), ("", ["-m", "not peers", FOLDER]), ("", ["-m", "slow", FOLDER]), ("", [FILE])
    )
    assert by_default == others == []
    assert slow
    assert named == [name for name in slow if name.startswith(FILE)]


@pytest.mark.slow
def test_quarters_add_up():
    """Four quarters are all slow tests, and none is in two; a quarter takes nothing from a file that is named."""
    every, *quarters, named = chosen(
        ("", ["-m", "slow", FOLDER]), *((str(number), ["-m", "slow", FOLDER]) for number in range(4)), ("0", [FILE])
    )
    assert sorted(chain(*quarters)) == sorted(every)
    assert all(len(quarter) < len(every) for quarter in quarters)
    assert named == [name for name in every if name.startswith(FILE)]


@pytest.mark.slow
def test_samples_leave_the_rest_to_the_second_tier():
    """Of a test with the marker sample(6), the first tier has every sixth case, beginning with the first."""
    arguments = ["tests/torch", "--ignore-glob=*/test_torch_*", "-k", "exported_again"]
    first, both = chosen(("", arguments), ("", ["-m", "slow or not slow", *arguments]))
    assert first == both[::6]
