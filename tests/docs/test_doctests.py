"""Every example in a docstring runs."""

import doctest
import pkgutil
from importlib import import_module

import pytest

import unpool

MODULES = ["unpool", *(module.name for module in pkgutil.walk_packages(unpool.__path__, "unpool."))]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    """The examples of a module print what they claim."""
    result = doctest.testmod(import_module(name))

    assert result.failed == 0


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
