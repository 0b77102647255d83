"""Who is measured; each engine is a module with `version`, `start(threads)` and `prepare`.

`prepare(case, arrays, outputs, threads)` gives a call that can be repeated, or raises; peers raise whatever they like
when they do not offer a case. A module is imported by the process of its engine only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.case import OWN, POOLED, Case

UNPOOL = "unpool"


@dataclass(frozen=True)
class Engine:
    """An engine under its short name.

    Attributes:
        name: as it is written on the command line and into results.
        title: as it is written in tables.
        module: imported by its process only.
    """

    name: str
    title: str
    module: str

    def outputs(self, case: Case) -> tuple[str, ...]:
        """Into which kinds of memory it is measured: those of the goals; peers allocate as they do."""
        return (tuple(case.goals) or (POOLED,)) if self.name == UNPOOL else (OWN,)


ENGINES = (
    Engine(UNPOOL, "unpool", "benchmarks.engines.unpool_functions"),
    Engine("onnxruntime", "onnxruntime", "benchmarks.engines.onnxruntime_cpu"),
    Engine("torch", "PyTorch", "benchmarks.engines.pytorch"),
    Engine("openvino", "OpenVINO", "benchmarks.engines.openvino_cpu"),
)
TUNED = Engine("unpool_tuned", f"{UNPOOL}, tuned", "benchmarks.engines.unpool_tuned")
"""Whole networks alone."""

MULTIPLICATIONS = Engine("multiplications", "multiplications alone", "benchmarks.engines.multiplications")
"""The baseline of whole networks: the run-to-run variation of the machine."""

BY_NAME = {engine.name: engine for engine in ENGINES}
EVERY = {engine.name: engine for engine in (*ENGINES, TUNED, MULTIPLICATIONS)}


@dataclass(frozen=True)
class Ready:
    """A call that can be repeated, and how what it returns is read as arrays, channels first, in ONNX's indices."""

    call: Callable[[], Any]
    read: Callable[[Any], tuple[np.ndarray, ...]]


def operator(case: Case) -> ModuleType:
    """The module that knows the operator's inputs and names."""
    return import_module(f"benchmarks.{case.operator}")
