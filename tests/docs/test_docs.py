"""The documents say what is there: their links lead somewhere, their tables hold, their commands exist."""

import re
import runpy
import shlex

import pytest
import typer

from tests.docs.blocks import ROOT, blocks, pages
from unpool.cli.app import app
from unpool.operators import contract

README = (ROOT / "README.md").read_text(encoding="utf-8")
LINK = re.compile(r"\]\(([^)]+)\)")
SPAN = re.compile(r"`([^`]+)`")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"unpool [a-z]")
SHELL = re.compile(r" (?:\|\|?|&&|--) ")
OPTION = re.compile(r"--?[a-z]")


def test_readme_is_short():
    """The README can be read in one go."""
    assert len(README.splitlines()) < 160


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_first_numbers_are_those_of_the_table(page):
    """What the first screen says of speed stands in the table of the benchmarks."""
    text, table = (ROOT / page).read_text(encoding="utf-8"), README[README.index("<!-- speed:begin") :]
    pool, segnet = (re.search(rf"{case}.* ([\d.]+)× \|", table)[1] for case in ("VGG-16 pool 1", r"\| SegNet \d"))
    lost, least = re.search(r"in (\d+) of them", table)[1], re.search(r": (0\.\d+)×\.", table)[1]
    rows = re.search(r"all (\d+) rows", table)[1]

    assert f"{pool} times" in text or (pool == "16" and "a sixteenth of the time" in text)
    assert f"{segnet} times as fast" in text
    assert f"{lost} of {rows}" in text
    assert page != "README.md" or f"by {1 / float(least):.2f} times at most" in text


def test_links_lead_somewhere():
    """A relative link names a file of the repository and, after #, one of its headings."""
    links = [(page, link) for page in pages() for link in LINK.findall((ROOT / page).read_text(encoding="utf-8"))]

    assert [(page, link) for page, link in links if "://" not in link and not leads_somewhere(ROOT / page, link)] == []


def leads_somewhere(page, target):
    """Whether a link of a page has a file and, if it names one, a heading or an anchor in it."""
    place, _, heading = re.sub(r"\?[^#]*", "", target).partition("#")
    file = page.parent / place if place else page
    if not heading or not file.is_file():
        return file.exists() and not heading
    text = file.read_text(encoding="utf-8")
    anchors = {anchor(title) for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
    return heading in anchors | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


def anchor(title):
    """The anchor of a heading: lower case, hyphens for blanks, no other signs."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def test_versions_page_is_that_of_the_contract():
    """docs/versions.md is what docs/versions.py writes."""
    page = runpy.run_path(str(ROOT / "docs" / "versions.py"))["page"]()

    assert (ROOT / "docs" / "versions.md").read_text(encoding="utf-8") == page


def test_platforms_page_has_the_runs_on_record():
    """docs/platforms.md is what docs/platforms.py writes from docs/platforms.json."""
    page = runpy.run_path(str(ROOT / "docs" / "platforms.py"))["page"]()

    assert (ROOT / "docs" / "platforms.md").read_text(encoding="utf-8") == page


@pytest.mark.parametrize("operator", contract.OPERATORS)
def test_readme_table_is_that_of_the_contract(operator):
    """The row of an operator names all its versions and all types of the newest."""
    rows = contract.versions_of(operator, "")
    table = README.partition("| operator | versions |")[2].partition("\n\n")[0]
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {operator} |")]
    _, _, versions, types, _, _, _ = (cell.strip() for cell in line.split("|"))

    assert versions.split(", ") == [str(row.since_version) for row in rows]
    assert sorted(types.split(", ")) == sorted(rows[-1].value_types)


def test_commands_use_options_that_exist():
    """Every command of `unpool`, in a block or in a line of text, is one that there is, with options that it has."""
    commands = typer.main.get_command(app).commands
    used = [(page, *words) for page in pages() for words in commands_of(page)]

    assert [(page, name, *words) for page, name, *words in used if name not in commands] == []
    assert [
        (page, name, *words) for page, name, *words in used
        if set(filter(OPTION.match, words)) - options_of(commands[name])
    ] == []  # fmt: skip


def commands_of(page):
    """The commands of `unpool` on a page, each as a list of words without `unpool`."""
    lines = [line for block in blocks(page) if block.language == "sh" for line in block.code.splitlines()]
    lines += [" ".join(span.split()) for span in SPAN.findall(FENCE.sub("", (ROOT / page).read_text(encoding="utf-8")))]
    parts = [part.removeprefix("unpool ") for line in lines for part in SHELL.split(line) if COMMAND.match(part)]
    return [shlex.split(part, comments=True) for part in parts]


def options_of(command):
    """All options of a command, in every spelling."""
    return {word for option in command.params for word in (*option.opts, *option.secondary_opts)} | {"--help"}
