"""Pages do what they say: their blocks run in order, in one folder, and print what stands below them."""

import re
import subprocess
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.docs.blocks import ROOT, blocks, check, pages
from tests.support.packages import brought_by, modules_without
from tests.support.page_files import put_files

ELSEWHERE = {
    ("docs/clusters.md", "sh"): "tests/dask/test_page.py",
    ("docs/differences/conv-transpose.md", "python"): "tests/conformance/test_conformance.py",
    ("docs/differences/conv-transpose.md", "text"): "tests/conformance/test_conformance.py",
    ("docs/differences/max-pool.md", "python"): "tests/conformance/test_conformance.py",
    ("docs/differences/max-pool.md", "text"): "tests/conformance/test_conformance.py",
    ("docs/differences/max-unpool.md", "python"): "tests/conformance/test_conformance.py",
    ("docs/differences/max-unpool.md", "text"): "tests/conformance/test_conformance.py",
    ("docs/errors.md", "python"): "tests/docs/test_errors.py",
    ("docs/errors.md", "sh"): "tests/docs/test_errors.py",
    ("docs/how-it-works.md", "python"): "tests/docs/test_walk.py",
    ("docs/semantics.md", "python"): "tests/docs/test_semantics_doc.py",
    ("docs/tasks/without-python.md", "python"): "tests/onnxruntime/test_compile.py",
    ("docs/tasks/without-python.md", "sh"): "tests/onnxruntime/test_compile.py",
    ("examples/onnxruntime/README.md", "sh"): "tests/onnxruntime_api/test_examples.py",
}
"""Blocks by page and language that another file of tests runs, or compares with what wrote them."""

NOT_RUN = {
    "docs/install.md": 1,
    "docs/releasing.md": 2,
    "examples/docker/README.md": 2,
    "CONTRIBUTING.md": 5,
    "benchmarks/README.md": 2,
    "docs/clusters.md": 1,
    "docs/decisions/0017-mkdocs-until-zensical-runs-hooks.md": 1,
    "docs/gpu.md": 2,
    "docs/onnxruntime.md": 1,
    "docs/reliability.md": 1,
    "examples/coins/README.md": 1,
}
"""How many blocks of a page say that the tests do not run them."""

DRAWINGS = {"docs/errors.md": 1, "docs/how-it-works.md": 1, "examples/coins/README.md": 1}
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
INSTALLED = re.compile(r"'\.\[([\w,]+)\]'")
INSTALLING = {
    page: sorted(extras - {"test"})  # for those who change unpool
    for page in HERE
    if page != "docs/install.md"  # all extras, and nothing to run
    and (extras := {each for found in INSTALLED.findall((ROOT / page).read_text("utf-8")) for each in found.split(",")})
}
"""Pages that say what to install, each with the extras in its lines."""

FRONT = ("README.md", "docs/index.md")
"""Of these pages, those that the first tier runs, too: each one takes a process of its own."""

MARKED = [(page, one) for page in pages() for one in blocks(page) if one.reason]


@pytest.mark.parametrize("page", [page for page in HERE if page not in INSTALLING])
def test_blocks_print_what_they_say(page, tmp_path, monkeypatch):
    """Python and commands of a page, run as a reader would, print the text below.

    Pages of tasks and the tutorial make what they need; others take files of the reader's for granted.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    if not page.startswith(("docs/tasks/", "docs/tutorial")):
        put_files()
    check(page, HERE[page], INSTEAD)


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=() if page in FRONT else pytest.mark.slow) for page in INSTALLING]
)
def test_pages_need_what_they_install(page, tmp_path, monkeypatch):
    """The same, in a process that can import nothing else than what the page's own install lines bring.

    They bring Numba: an installation from a clone has no kernels without it.
    """
    monkeypatch.chdir(tmp_path)
    if not page.startswith(("docs/tasks/", "docs/tutorial")):
        put_files()
    packages = brought_by(*INSTALLING[page])
    assert "numba" in packages
    with ProcessPoolExecutor(1, get_context("spawn")) as alone:
        alone.submit(check, page, HERE[page], INSTEAD, hidden=modules_without(packages)).result()


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
