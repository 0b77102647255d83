"""Pages do what they say: their blocks run in order, in one folder, and print what stands below them."""

import subprocess
from collections import Counter
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker

import pytest

from tests.docs.blocks import ROOT, blocks, pages, run
from tests.support.page_files import put_files

ELSEWHERE = {
    ("docs/clusters.md", "sh"): "tests/dask/test_page.py",
    ("docs/differences/conv-transpose.md", "python"): "tests/docs/test_conformance.py",
    ("docs/differences/conv-transpose.md", "text"): "tests/docs/test_conformance.py",
    ("docs/differences/max-pool.md", "python"): "tests/docs/test_conformance.py",
    ("docs/differences/max-pool.md", "text"): "tests/docs/test_conformance.py",
    ("docs/differences/max-unpool.md", "python"): "tests/docs/test_conformance.py",
    ("docs/differences/max-unpool.md", "text"): "tests/docs/test_conformance.py",
    ("docs/errors.md", "python"): "tests/docs/test_errors.py",
    ("docs/errors.md", "sh"): "tests/docs/test_errors.py",
    ("docs/how-it-works.md", "python"): "tests/docs/test_walk.py",
    ("docs/semantics.md", "python"): "tests/docs/test_semantics_doc.py",
    ("examples/onnxruntime/README.md", "sh"): "tests/onnxruntime_api/test_examples.py",
}
"""Blocks by page and language that another file of tests runs, or compares with what wrote them."""

NOT_RUN = {
    "docs/install.md": 1,
    "docs/releasing.md": 2,
    "examples/docker/README.md": 2,
    "CONTRIBUTING.md": 4,
    "benchmarks/README.md": 2,
    "docs/clusters.md": 1,
    "docs/gpu.md": 3,
    "docs/onnxruntime.md": 1,
    "docs/reliability.md": 1,
    "examples/coins/README.md": 1,
}
"""How many blocks of a page say that the tests do not run them."""

DRAWINGS = {"docs/errors.md": 1, "docs/gpu.md": 1, "docs/how-it-works.md": 1, "examples/coins/README.md": 1}
"""How many blocks of a page have no language: there is nothing to run."""

INSTEAD = {
    "512x512": "32x32",
    "96x96x96": "16x16x16",
    "height=360": "height=24",
    "width=480": "width=16",
    "2GiB": "64GiB",
    "4GiB": "64GiB",
}
"""Words of commands, and what stands for them here: pictures are small, and the process of the tests is large."""


def is_run_here(page, block):
    """Whether this file runs a block."""
    return bool(block.language) and not block.reason and (page, block.language) not in ELSEWHERE


HERE = {page: found for page in pages() if (found := [one for one in blocks(page) if is_run_here(page, one)])}
MARKED = [(page, one) for page in pages() for one in blocks(page) if one.reason]


@pytest.mark.parametrize("page", HERE)
def test_blocks_print_what_they_say(page, tmp_path, monkeypatch):
    """Python and commands of a page, run as a reader would, print the text below.

    Pages of tasks and the tutorial make what they need; others take files of the reader's for granted. Three dots stand
    for anything, and columns of a command may be closer together. Without a text below, a command may print anything.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    if not page.startswith(("docs/tasks/", "docs/tutorial")):
        put_files()
    names = {"__name__": "page"}
    for block in HERE[page]:
        printed = run(block.language, block.code, names, INSTEAD)
        how = ELLIPSIS if block.language == "python" else ELLIPSIS | NORMALIZE_WHITESPACE
        is_free = block.language == "sh" and not block.text
        is_as_said = is_free or OutputChecker().check_output(block.text, printed, how)
        assert is_as_said, f"{page}:\n{block.code}printed\n{printed}"


def test_what_is_not_run_says_so():
    """The blocks that nothing runs are counted; each gives a reason, and is at least well-formed."""
    assert Counter(page for page, _ in MARKED) == NOT_RUN
    assert Counter(page for page in pages() for one in blocks(page) if not one.language) == DRAWINGS
    for page, block in MARKED:
        assert len(block.reason.split()) > 3, f"{page}: {block.reason}"
        if block.language == "python":
            compile(block.code, page, "exec")
        else:
            subprocess.run(["bash", "-n"], input=block.code, text=True, check=True)


def test_what_runs_elsewhere_is_there():
    """The files of tests that take blocks of a page name the page, and the page has such blocks."""
    for (page, language), file in ELSEWHERE.items():
        name = page.removeprefix("docs/").removesuffix("/README.md")
        assert name in (ROOT / file).read_text(encoding="utf-8"), file
        assert [one for one in blocks(page) if one.language == language], (page, language)
