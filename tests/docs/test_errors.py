"""docs/errors.md: every class of ours has its cause, its cure, and an example that raises it."""

import ast
import re
import shlex

import pytest
from typer.testing import CliRunner

from tests.docs.blocks import BLOCK, ROOT, Block, run
from unpool.cli import errors
from unpool.cli.app import app

SOURCE, DOCS = ROOT / "src" / "unpool", ROOT / "docs"
HEAD, *SECTIONS = re.split(r"^## ", (DOCS / "errors.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
SECTIONS = dict(section.split("\n", 1) for section in SECTIONS)
CODES = re.findall(r"^\| (\d+) \| ([\w ]+) \|", (DOCS / "exit-codes.md").read_text(encoding="utf-8"), re.MULTILINE)
TREE = HEAD.split("```\n")[1]


def classes():
    """The names of our errors and warnings: what derives, perhaps by others, from UnpoolError or a warning."""
    every = [node for path in SOURCE.rglob("*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for node in every
        if isinstance(node, ast.ClassDef)
    }
    found = {"UnpoolError", *(name for name, above in bases.items() if "UserWarning" in above)}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found


def test_every_class_has_its_section():
    """No error of ours is missing, in the sections and in the tree."""
    assert set(SECTIONS) == classes() == set(re.findall(r"^[│├└─ ]*(\w+)", TREE, re.MULTILINE))


@pytest.mark.parametrize("name", SECTIONS)
def test_example_raises_its_class(name, tmp_path, monkeypatch):
    """The example of a section raises the class, with the message that stands below."""
    monkeypatch.chdir(tmp_path)
    section = SECTIONS[name]
    (block,) = (Block(*found) for found in BLOCK.findall(section))

    assert "**Cause.**" in section
    assert "**Solution.**" in section
    if block.language == "python":
        assert run(block.language, block.code, {}) == block.text
        assert block.text.startswith(f"{name}: ")
    else:
        result = CliRunner().invoke(app, shlex.split(block.code)[1:])
        assert type(result.exception.__cause__).__name__ == name
        assert result.output == block.text


def test_exit_codes_are_those_of_the_command():
    """The table has every code, and no other."""
    constants = {
        name.lower().replace("_", " "): value
        for name, value in vars(errors).items()
        if name.isupper() and not name.startswith("_")
    }
    del constants["signal base"]

    assert {name: int(code) for code, name in CODES} == constants
