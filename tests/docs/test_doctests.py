"""Every example in a docstring runs."""

import doctest
import pkgutil
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import unpool

MODULES = {
    name: Path(find_spec(name).origin).read_text(encoding="utf-8")
    for name in ("unpool", *(module.name for module in pkgutil.walk_packages(unpool.__path__, "unpool.")))
}


def room(name):
    """The room of a module: `unpool.operators`."""
    return ".".join(name.split(".")[:2])


@pytest.mark.parametrize("place", sorted({room(name) for name, text in MODULES.items() if ">>>" in text}))
def test_examples_in_docstrings(place):
    """The examples of a room print what they claim."""
    names = [name for name, text in MODULES.items() if ">>>" in text and room(name) == place]

    assert [name for name in names if doctest.testmod(import_module(name)).failed] == []


def test_examples_are_found():
    """The finder sees the examples: without any, all of them would pass."""
    finder = doctest.DocTestFinder()
    found = [len(test.examples) for name in MODULES for test in finder.find(import_module(name))]

    assert sum(found) > 100


def test_public_functions_have_examples():
    """A public function without an example is not finished."""
    finder = doctest.DocTestFinder(recurse=False)
    functions = (unpool.max_pool, unpool.max_unpool, unpool.conv_transpose, unpool.to_onnx_indices)

    assert all(finder.find(function)[0].examples for function in (*functions, unpool.to_torch_indices))
