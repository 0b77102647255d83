"""The documents say what is there: their code runs, their links lead somewhere, their tables hold."""

import re
import runpy
import shlex
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
import typer

from unpool.cli.app import app
from unpool.operators import contract

ROOT = Path(__file__).parents[2]
OUTSIDE = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks/README.md",
    "examples/coins/README.md",
    "examples/onnxruntime/README.md",
]
PAGES = OUTSIDE + sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
LEAST_BLOCKS = {
    "README.md": 3,
    "docs/clusters.md": 2,
    "docs/command-line.md": 1,
    "docs/comparing.md": 1,
    "docs/explaining.md": 1,
    "docs/exported-models.md": 2,
    "docs/pictures.md": 1,
    "docs/report.md": 1,
}
WITH_CODE = {page: (ROOT / page).read_text(encoding="utf-8") for page in LEAST_BLOCKS}
LINK = re.compile(r"\]\(([^)]+)\)")


@pytest.mark.parametrize(
    ("page", "code", "printed"), [(page, *block) for page, text in WITH_CODE.items() for block in PYTHON.findall(text)]
)
def test_code_prints_what_it_says(page, code, printed, tmp_path, monkeypatch):
    """Every Python block of a page runs, in an empty folder, and prints the block after it."""
    monkeypatch.chdir(tmp_path)
    stream = StringIO()
    with redirect_stdout(stream):
        exec(compile(code, page, "exec"), {})

    assert stream.getvalue() == printed


@pytest.mark.parametrize(("page", "least"), LEAST_BLOCKS.items())
def test_every_python_block_is_run(page, least):
    """No Python block of a page goes without its output."""
    assert WITH_CODE[page].count("```python") == len(PYTHON.findall(WITH_CODE[page])) >= least


def test_readme_is_short():
    """The README can be read in one go."""
    assert len(README.splitlines()) < 160


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    """A relative link names a file of the repository and, behind #, one of its headings."""
    path = ROOT / page
    targets = [target for target in LINK.findall(path.read_text(encoding="utf-8")) if "://" not in target]

    assert [target for target in targets if not leads_somewhere(path, target)] == []


def leads_somewhere(page, target):
    """Whether a link of a page has a file and, if it names one, a heading or an anchor in it."""
    place, _, heading = target.partition("#")
    file = page.parent / place if place else page
    if not heading or not file.is_file():
        return file.exists() and not heading
    text = file.read_text(encoding="utf-8")
    anchors = {anchor(title) for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
    return heading in anchors | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


def anchor(title):
    """What a heading is called behind #: lower case, hyphens for blanks, no other signs."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def test_versions_page_is_that_of_the_contract():
    """docs/versions.md is what docs/versions.py writes."""
    page = runpy.run_path(str(ROOT / "docs" / "versions.py"))["page"]()

    assert (ROOT / "docs" / "versions.md").read_text(encoding="utf-8") == page


@pytest.mark.parametrize("operator", contract.OPERATORS)
def test_readme_table_is_that_of_the_contract(operator):
    """The row of an operator names all its versions and all types of the newest."""
    rows = contract.rows_of(operator, "")
    table = README.partition("| operator | versions |")[2].partition("\n\n")[0]
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {operator} |")]
    _, _, versions, types, _, _, _ = (cell.strip() for cell in line.split("|"))

    assert versions.split(", ") == [str(row.since_version) for row in rows]
    assert sorted(types.split(", ")) == sorted(rows[-1].value_types)


def test_readme_commands_use_options_that_exist():
    """Every shell line of `unpool` in the README names a command, and options that it has."""
    commands = typer.main.get_command(app).commands
    lines = [shlex.split(line, comments=True) for line in README.splitlines() if line.startswith("unpool ")]
    used = [(words[1], {word for word in words if word.startswith("-")}) for words in lines]

    assert used
    assert {name for name, _ in used} - set(commands) == set()
    assert [(name, words) for name, words in used if words - options_of(commands[name])] == []


def options_of(command):
    """All options of a command, in every spelling."""
    return {word for option in command.params for word in option.opts}
