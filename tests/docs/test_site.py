"""The site: the reference names what is public, and notebooks are kept without what they print."""

import ast
import doctest
import json
import re
import runpy
import tomllib

import pytest
from packaging.requirements import Requirement

from tests.docs.blocks import ROOT, pages
from unpool import extras
from unpool.cli.app import COMMANDS

SOURCE = ROOT / "src" / "unpool"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
PLATFORMS = (ROOT / "docs" / "platforms.md").read_text(encoding="utf-8")
REFERENCE = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reference").glob("*.md"))
ERRORS = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
INSTALLED = re.compile(r"pip install (?:[\w-]+ )*'([\w./]+)\[([\w,]+)\]'")
WITH_INSTALL_LINES = [*(ROOT / page for page in pages()), *SOURCE.rglob("*.py"), ROOT / "mkdocs.yml"]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def public_names(path):
    """What a module lists in `__all__`, or nothing; it is not imported."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and [getattr(target, "id", "") for target in node.targets] == ["__all__"]:
            return ast.literal_eval(node.value)
    return []


INSIDE = {"cli", "execute", "files", "functional"}
"""Rooms with a list of names that are not for users, or are those of `unpool`."""

PUBLIC = {
    "unpool" if path == SOURCE / "__init__.py" else f"unpool.{name}": public_names(path)
    for path in (*SOURCE.glob("*.py"), *SOURCE.glob("*/__init__.py"))
    if (name := path.parent.name if path.stem == "__init__" else path.stem) not in INSIDE and public_names(path)
}


def test_public_modules_are_found():
    """The modules of which the reference must have every name."""
    assert sorted(PUBLIC) == [
        "unpool",
        "unpool.dask",
        "unpool.images",
        "unpool.onnxruntime",
        "unpool.openvino",
        "unpool.picture_input",
        "unpool.streams",
        "unpool.tiles",
        "unpool.torch",
    ]


@pytest.mark.parametrize("module", PUBLIC)
def test_reference_has_every_public_name(module):
    """Every public name has an entry in the reference; errors have a section of their own."""
    known = re.findall(r"^(?:::: | +heading: )([\w.]+)", REFERENCE, re.MULTILINE)
    known += [f"unpool.{name}" for name in re.findall(r"^## (\w+)", ERRORS, re.MULTILINE)]

    assert {f"{module}.{name}" for name in PUBLIC[module]} - set(known) == set()


def written(requirement):
    """A requirement of pyproject.toml as the table of the extras has it: its name and the oldest version."""
    needed = Requirement(requirement)
    if needed.name == PROJECT["name"]:
        return ", ".join(f"`{extra}`" for extra in EXTRAS if extra in needed.extras)
    (oldest,) = [one.version for one in needed.specifier if one.operator == ">="]
    return f"{needed.name} {oldest}"


def test_platforms_have_every_extra():
    """The table has a row for each extra, and for none, with the packages and their oldest versions."""
    needed = {"(none)": PROJECT["dependencies"]} | {f"`{extra}`": EXTRAS[extra] for extra in EXTRAS}
    rows = re.findall(r"^\| (\(none\)|`\w+`) \| .+ \| (.+) \|$", PLATFORMS, re.MULTILINE)

    assert set(rows) >= {(name, ", ".join(map(written, packages))) for name, packages in needed.items()}


def test_extras_that_somebody_is_told_to_install_exist():
    """Pages, messages of errors and the image for a cluster name extras of pyproject.toml."""
    files = [*WITH_INSTALL_LINES, ROOT / "examples" / "clusters" / "Dockerfile"]
    named = [names for path in files for _, names in INSTALLED.findall(path.read_text(encoding="utf-8"))]

    assert len(named) > 30
    assert {extra for names in named for extra in names.split(",")} - set(EXTRAS) == set()


def test_install_lines_are_those_of_messages():
    """Every line that installs extras names unpool as `unpool.extras` does, which a release on an index changes."""
    texts = {path: path.read_text(encoding="utf-8") for path in WITH_INSTALL_LINES}
    sources = {source for text in texts.values() for source, _ in INSTALLED.findall(text)}

    assert sources == {extras.SOURCE}
    assert [path for path, text in texts.items() if re.search(r"\bunpool\[\w", text)] == []
    assert extras.install_line("run", "dask") in texts[ROOT / "docs" / "clusters.md"]


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "builder").glob("*.py")), ids=lambda path: path.stem)
def test_examples_of_the_builder(path):
    """The examples in docstrings of what builds the site hold."""
    names = runpy.run_path(str(path), run_name="builder")
    runner = doctest.DocTestRunner()
    for name, value in names.items():
        if getattr(value, "__module__", "") == "builder" and value.__doc__:
            runner.run(doctest.DocTestParser().get_doctest(value.__doc__, names, name, str(path), 0))

    assert runner.failures == 0


def test_page_of_the_command_line_gets_every_command():
    """What Typer writes gives each command a line that leads to its section, and an example that can be copied."""
    builder = runpy.run_path(str(ROOT / "docs" / "builder" / "commands.py"))
    text = builder["written"]()
    names = [command.__name__ for command in COMMANDS]

    assert re.findall(r"^- \[`(\w+)`\]\(#unpool-\1\): .+\.$", builder["listed"](text), re.MULTILINE) == names
    assert re.findall(r"^## `unpool (\w+)`$", builder["sections"](text), re.MULTILINE) == names
    assert "```sh\nunpool run model.onnx" in builder["sections"](text)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_output(path):
    """Every build of the site runs them, so what they print is not stored."""
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]

    assert cells
    assert [cell["id"] for cell in cells if cell["outputs"] or cell["execution_count"]] == []


@pytest.mark.parametrize(
    "folder", sorted({path.parent for path in (ROOT / "docs").glob("*/*.md")}), ids=lambda one: one.name
)
def test_every_folder_of_pages_has_one_of_its_own(folder):
    """The address of a folder is a page, which leads to all pages of the folder."""
    names = {path.name for path in folder.glob("*.md")} - {"index.md"}
    text = (folder / "index.md").read_text(encoding="utf-8")

    assert names - set(re.findall(r"\(([\w-]+\.md)\)", text)) == set()
    assert f"{folder.name}/index.md" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.svg")), ids=lambda path: path.stem)
def test_drawings_fit_a_phone(path):
    """A drawing is no wider than a phone shows without scrolling, at the size of its letters."""
    sizes = re.search(r'<svg [^>]*width="(\d+)" height="\d+" viewBox="0 0 (\d+) \d+"', path.read_text(encoding="utf-8"))

    assert sizes is not None
    assert int(sizes[1]) == int(sizes[2]) <= 400


@pytest.mark.parametrize("page", pages())
def test_page_has_one_title(page):
    """A page has one heading of the first level: the site takes its title, and its table of contents, from it."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)

    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1
