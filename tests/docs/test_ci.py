"""What CI runs is what the README prints, in versions that a clone of the repository holds."""

import re

import pytest

from tests.docs.blocks import ROOT, blocks
from tests.support.packages import brought_by, pins

COMMANDS = blocks("README.md")[0].code.splitlines()
SCRIPT = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
WORKFLOWS = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml")}


def test_ci_runs_the_commands_of_the_readme():
    """Both of them, each found by its beginning; nothing that the README does not print chooses other versions."""
    beginnings = re.findall(r'command_of_readme "(.*)"\)', SCRIPT)
    readme = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert [[line for line in readme if beginning in line] for beginning in beginnings] == [[line] for line in COMMANDS]
    assert "CONSTRAINT" not in SCRIPT


def test_the_tests_are_installed_in_the_versions_that_they_passed_with():
    """A release of another package changes nothing: the file that the README's command names has all of them."""
    (file,) = re.findall(r"pip install -c (\S+) '\.\[test\]'", "\n".join(COMMANDS))
    assert brought_by("test") - pins(file).keys() == {"unpool"}


def test_ci_fetches_those_versions():
    """The file with the digests has the same ones; only what torch needs for CUDA is left out."""
    constraints, requirements = pins(".ci/constraints.txt"), pins(".ci/requirements.txt")
    assert requirements.items() <= constraints.items()
    assert all(name.startswith(("nvidia-", "cuda-")) for name in constraints.keys() - requirements.keys())


@pytest.mark.parametrize("name", ["ci.yml", "nightly.yml"])
def test_workflows_install_those_versions(name):
    """With the README's words."""
    command = COMMANDS[1].partition(" && ")[0]
    lines = re.findall(r"run: (pip install .*)", WORKFLOWS[name])
    assert lines
    assert set(lines) == {command}
