"""Which tests run by default, and which only when they are asked for."""

import json
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SLOW = {"benchmarks", "browser", "build", "conformance"}  # folders whose tests are all in the second tier
TESTS = """
import pytest


@pytest.mark.parametrize("letter", "ab")
@pytest.mark.parametrize("number", range(4))
def test_of_a_product(number, letter):
    pass


@pytest.mark.sample(3)
@pytest.mark.parametrize("number", range(8))
def test_of_a_sample(number):
    pass


@pytest.mark.sample(1)
@pytest.mark.parametrize("letter", "ab")
@pytest.mark.parametrize("number", range(2))
def test_of_every_case(number, letter):
    pass


@pytest.fixture(params=[pytest.param("rare", marks=pytest.mark.slow), "frequent"])
def way(request):
    pass


@pytest.mark.parametrize("number", range(2))
def test_of_a_fixture(number, way):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("number", range(40))
def test_that_is_slow(number):
    pass
"""
RUNS = {
    "a folder": ("", ["."]),
    "another marker": ("", ["-m", "not peers", "."]),
    "slow": ("", ["-m", "slow", "."]),
    "a file": ("", ["test_tiers.py"]),
    **{f"part {number}": (f"{number}/4", ["-m", "slow", "."]) for number in range(4)},
    "a file in part": ("0/4", ["test_tiers.py"]),
}
COUNT = """
import contextlib, io, json, os, sys
import pytest


class Counter:
    def pytest_collection_finish(self, session):
        self.names = [item.name for item in session.items]


chosen = {}
for name, (part, arguments) in json.loads(sys.argv[1]).items():
    os.environ["TEST_PART"] = part
    counter = Counter()
    with contextlib.redirect_stdout(io.StringIO()):
        plugins = ["-p", "tests.conftest", "-p", "no:cacheprovider"]
        pytest.main(["--collect-only", "-q", "--rootdir=.", *plugins, *arguments], plugins=[counter])
    chosen[name] = counter.names
print(json.dumps(chosen))
"""


@pytest.fixture(scope="module")
def chosen(tmp_path_factory):
    """The tests of TESTS that pytest chooses, for every run."""
    folder = tmp_path_factory.mktemp("tiers")
    (folder / "test_tiers.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = slow\n sample(n)\n")
    done = subprocess.run(
        [sys.executable, "-c", COUNT, json.dumps(RUNS)],
        cwd=folder, env={**os.environ, "PYTEST_ADDOPTS": "", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def test_slow_tests_run_only_when_they_are_asked_for(chosen):
    """A folder runs without them, whatever -m says of other markers; `-m slow` and a file that is named run them."""
    assert chosen["a folder"] == chosen["another marker"]
    assert not set(chosen["a folder"]) & set(chosen["slow"])
    assert sorted(chosen["a file"]) == sorted(chosen["a folder"] + chosen["slow"])
    assert len([name for name in chosen["slow"] if "slow" in name]) == 40


def test_the_first_tier_has_every_value_of_a_product(chosen):
    """Of cases that are a product, it has as many as the longest factor, and of a sample(n) every n-th."""
    assert chosen["a folder"] == [
        *("test_of_a_product[0-a]", "test_of_a_product[1-b]", "test_of_a_product[2-a]", "test_of_a_product[3-a]"),
        *("test_of_a_sample[0]", "test_of_a_sample[3]", "test_of_a_sample[6]"),
        *(f"test_of_every_case[{number}-{letter}]" for number in (0, 1) for letter in "ab"),
        *("test_of_a_fixture[frequent-0]", "test_of_a_fixture[frequent-1]"),
    ]


def test_the_smoke_tier_is_of_every_folder():
    """It names files that are there, of each folder with tests in the first tier."""
    named = {line.split("::")[0] for line in (ROOT / "tests" / "smoke.txt").read_text().splitlines() if "/" in line}
    folders = {path.relative_to(ROOT).parts[1] for path in (ROOT / "tests").rglob("test_*.py")} - SLOW
    assert [file for file in named if not (ROOT / file).is_file()] == []
    assert {file.split("/")[1] for file in named} == folders


def test_parts_add_up(chosen):
    """Four parts are all slow tests, and none is in two; a part takes nothing from a file that is named."""
    parts = [chosen[f"part {number}"] for number in range(4)]
    assert sorted(chain(*parts)) == sorted(chosen["slow"])
    assert all(len(part) < len(chosen["slow"]) for part in parts)
    assert chosen["a file in part"] == chosen["a file"]
