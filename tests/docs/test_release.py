"""What a release needs agrees: versions, platforms, and workflows whose actions are pinned."""

import re
import tomllib
from pathlib import Path

import pytest

import unpool
from unpool.build.targets import TARGETS

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("file", ["CITATION.cff", "packaging/conda/recipe.yaml"])
def test_versions_agree(file):
    """With the version of the package, which pyproject.toml reads from its source."""
    text = (ROOT / file).read_text(encoding="utf-8")
    assert re.search(r'^ *version: "?([\d.]+)"?$', text, re.MULTILINE)[1] == unpool.__version__


def test_the_recipe_has_the_packages_of_the_project():
    """With the same oldest versions; conda has no extras, so it has those of whole models, and Numba."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    recipe = (ROOT / "packaging" / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    run = [requirement for requirement in extras["run"] if requirement != "unpool[jit]"]
    wanted = [*project["dependencies"], *extras["jit"], *run, f"python{project['requires-python']}"]
    assert sorted(re.findall(r"^    - (\w+ >=.*)$", recipe, re.MULTILINE)) == sorted(
        line.replace(">=", " >=", 1) for line in wanted
    )


def test_every_platform_is_built():
    """By the script that makes a release."""
    loop = re.search(r"for target in (.*); do", (ROOT / "packaging" / "build").read_text(encoding="utf-8"))[1]
    assert sorted(loop.split()) == sorted(TARGETS)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned(path):
    """To a commit, with its version beside it; and nothing but the last job may write anything."""
    text = path.read_text(encoding="utf-8")
    uses = re.findall(r"uses: (.*)", text)
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", each) for each in uses), uses
    assert "permissions:\n  contents: read\n" in text
    assert text.count(": write") == (2 if path.name == "release.yml" else 0)
