"""Fixtures of several files: the program in C, and what Python does for the nodes of a session."""

import pytest

from tests.support.c_program import host as host
from unpool.onnxruntime import planner
from unpool.onnxruntime.kernel_table import plan_by_kernels


@pytest.fixture
def calls(monkeypatch):
    """One entry for each time that a node asks Python for something; kernels plan nothing."""
    found = []
    monkeypatch.setattr(planner, "_shared", {})  # of earlier tests
    monkeypatch.setattr(planner, "_inputs", lambda *args, old=planner._inputs: found.append(1) or old(*args))
    plan_by_kernels(False)
    yield found
    plan_by_kernels(True)


@pytest.fixture
def pools_without_python(monkeypatch):
    """No pool may be computed by Python: only plans run."""

    def compute(*_):
        raise AssertionError("computed by Python")

    monkeypatch.setattr(planner, "use_pool", compute)
