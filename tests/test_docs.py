"""The documents say what is there: their code runs, their links lead somewhere, their tables hold."""

import re
import runpy
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

from unpool.cli.app import app
from unpool.operators import contract

ROOT = Path(__file__).parents[1]
PAGES = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/how-it-works.md",
    "docs/versions.md",
    "docs/semantics.md",
    "docs/differences.md",
    "docs/export.md",
    "benchmarks/README.md",
    "examples/coins/README.md",
]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+)")


@pytest.mark.parametrize(("code", "printed"), PYTHON.findall(README))
def test_readme_code_prints_what_it_says(code, printed, tmp_path, monkeypatch):
    """Every Python block of the README runs, in an empty folder, and prints the block after it."""
    monkeypatch.chdir(tmp_path)
    stream = StringIO()
    with redirect_stdout(stream):
        exec(compile(code, "README.md", "exec"), {})

    assert stream.getvalue() == printed


def test_every_python_block_is_run():
    """No Python block of the README goes without its output."""
    assert README.count("```python") == len(PYTHON.findall(README)) >= 3


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    """A relative link names a file of the repository."""
    path = ROOT / page
    targets = [target for target in LINK.findall(path.read_text(encoding="utf-8")) if "://" not in target]

    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_versions_page_is_that_of_the_contract():
    """docs/versions.md is what docs/versions.py writes."""
    page = runpy.run_path(str(ROOT / "docs" / "versions.py"))["page"]()

    assert (ROOT / "docs" / "versions.md").read_text(encoding="utf-8") == page


@pytest.mark.parametrize("operator", contract.OPERATORS)
def test_readme_table_is_that_of_the_contract(operator):
    """The row of an operator names all its versions and all types of the newest."""
    rows = contract.rows_of(operator, "")
    (line,) = [line for line in README.splitlines() if line.startswith(f"| {operator} |")]
    _, _, versions, types, _, _, _ = (cell.strip() for cell in line.split("|"))

    assert versions.split(", ") == [str(row.since_version) for row in rows]
    assert sorted(types.split(", ")) == sorted(rows[-1].value_types)


def test_readme_commands_use_options_that_exist():
    """Every option in a shell line with `unpool run` is one of its options."""
    text = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["run", "--help"]).output
    lines = [line for line in README.splitlines() if line.startswith("unpool run ")]
    used = {word for line in lines for word in line.split() if word.startswith("-")}

    assert used
    assert {option for option in used if not re.search(rf"(^|\s){option}\s", text)} == set()
