"""Numba: one file uses what is not public, and compiling runs without garbage collection, in one chunk of frames."""

import ast
import gc
import os
from pathlib import Path

import pytest

import unpool
from unpool.kernels.cpu.machine.numba_internals import without_gc

pytestmark = pytest.mark.slow

SOURCE = Path(unpool.__file__).parent / "kernels"
PUBLIC = (":", "extending:", "core:cgutils", "core:types")
"""How imports from Numba begin, as `imported` names them, that all kernels may use."""


def imported(path: Path) -> set[str]:
    """What a file imports from Numba, at its top or in a function: `module:name`, the module without `numba`."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    found = set()
    for node in nodes:
        module = getattr(node, "module", None) or ""
        if (module or node.names[0].name).partition(".")[0] == "numba":
            found |= {f"{module.removeprefix('numba').removeprefix('.')}:{each.name}" for each in node.names}
    return found


def test_only_one_file_uses_numba_internals() -> None:
    """All other files of the kernels import from Numba what its documentation has, and names and types of its IR."""
    for path in SOURCE.rglob("*.py"):
        if path.name != "numba_internals.py":
            assert all(each.startswith(PUBLIC) for each in imported(path)), path


def new_pages(depth: int) -> int:
    """How often the system gave memory to the innermost of so many calls, while it called a function 200 times."""
    import resource

    if depth:
        return new_pages(depth - 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(200):
        returned()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def returned() -> None:
    """Nothing."""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows does not count the pages that it gives")
def test_frames_are_in_one_piece() -> None:
    """However deep the calls are, none asks the system for memory again and again."""
    assert max(without_gc(new_pages, depth) for depth in range(400)) < 100


@pytest.mark.parametrize("is_on", [True, False])
def test_collections_pause(is_on) -> None:
    """Nothing is collected meanwhile; afterwards it is as it was, whatever was raised."""
    (gc.enable if is_on else gc.disable)()
    try:
        assert not without_gc(gc.isenabled)
        assert gc.isenabled() == is_on
        with pytest.raises(ZeroDivisionError):
            without_gc(lambda: 1 / 0)
        assert gc.isenabled() == is_on
    finally:
        gc.enable()
