"""Who runs a model the fastest: runners are timed in turns, on random inputs, where a session is tuned.

| runners | ConvTranspose | the pieces between our nodes |
|---|---|---|
| usual | unpool | onnxruntime |
| Conv before Indices | unpool | onnxruntime, which loses more Convs to unpool: those on which Indices depend |
| openvino | unpool | OpenVINO |
| openvino with ConvTranspose | OpenVINO, where it computes them as they are written | OpenVINO |

The second differs only for models that have Indices, and OpenVINO may not be there. A caller who names providers has
chosen the pieces; OpenVINO's may still get every ConvTranspose. What was found is kept for later sessions of the same
file. Others than the usual runners are taken only if they are faster by a margin, and OpenVINO's only if they give the
same results but for rounding.
"""

import hashlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import onnx

from unpool.errors import UnpoolError
from unpool.execute import autotune
from unpool.runtime.graph.load import ModelSource
from unpool.runtime.graph.serialized import content_of
from unpool.runtime.plan.plan import Plan
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.openvino_device import is_installed, package
from unpool.runtime.runners.ort_options import CPU, OPENVINO, Providers
from unpool.runtime.session.random_inputs import random_feed
from unpool.runtime.session.told import Told

USUAL, BEFORE_INDICES = "usual", "Conv before Indices"
PIECES, WHOLE = "openvino", "openvino with ConvTranspose"

TOLERANCE = 1e-3
"""Relative to the largest element of an output."""

STRAYS = 1e-3
"""Of an output's elements that may be further off: where two elements of a pool differ by rounding, another may win."""

MARGIN = 0.03
"""Of the usual runners' time, by which others must be faster; whole runs are timed, so nothing is lost elsewhere."""

RUNS = 4
"""Of each model that a trial takes at least."""

SETTLE = 0.002
"""Seconds in which the threads of the others fall asleep."""

_log = logging.getLogger("unpool")


def candidates(told: Told) -> dict[str, Told]:
    """What a session may be made of in place of what was told, by a name; the usual one first.

    There is but one where nothing is tuned, or only unpool may compute, or other providers are named than OpenVINO; nor
    is there another with options of the caller, which may ask for anything.
    """
    found = {USUAL: told}
    if not told.tuning or told.delegates is not None or told.options is not None or told.meaning.exact:
        return found
    if told.providers is None:
        found[BEFORE_INDICES] = replace(told, delegates=False, before_indices=True)
    if told.providers is None and is_installed():
        there = replace(told, providers=Providers((OPENVINO, CPU), ({}, {})))
        found |= {PIECES: replace(there, delegates=False), WHOLE: replace(there, delegates=True)}
    elif is_installed() and told.all_providers.openvino is not None:
        found[WHOLE] = replace(told, delegates=True)
    return found


def differing(choices: Mapping[str, Told], plan: Plan | None) -> dict[str, Told]:
    """Those of the choices that differ from the usual one for a model.

    Args:
        choices: as of `candidates`.
        plan: of the usual one; None where onnxruntime runs the model as a whole.
    """
    pools = {one.step for one in plan or () if one.operator == "MaxPool" and one.runner == "unpool"}
    gives_indices = plan is not None and any(len(plan.steps[step].outputs) > 1 for step in pools)
    return {name: told for name, told in choices.items() if name != BEFORE_INDICES or gives_indices}


def known(told: Told) -> str | None:
    """The name of the runners that were the fastest once; None where that was never found out, or is not kept."""
    key = _key(told)
    return None if key is None else autotune.find_result(key)


def fastest(told: Told, models: Mapping[str, Any], feed: Mapping[str, Any], seconds: float) -> str:
    """The name of the model that runs the fastest; the usual one unless another is faster by a margin.

    Args:
        told: what the usual one is made of.
        models: by name, those that could be loaded, the usual one among them.
        feed: what they are run on.
        seconds: that are left; none is timed if they would not do.
    """
    if len(models) == 1:
        return USUAL
    calls = _equal({name: partial(one.run, None, feed) for name, one in models.items()}, seconds)
    if len(calls) == 1:
        return USUAL
    times = autotune.time_calls(calls, seconds, SETTLE, median)  # the fastest of so few whole runs would be luck
    found = autotune.fastest(times, USUAL, MARGIN)
    _log.info("tuning: the model goes by %s: %s.", found, autotune.format_times(times))
    key = _key(told)
    if key is not None:
        autotune.store_result(key, found)
    return found


def trial_feed(model: Any) -> dict[str, Any] | None:
    """Random inputs of a loaded model; None where sizes are open or an input is no tensor of numbers."""
    inputs = model.signature.inputs
    try:
        return random_feed(inputs, {})
    except UnpoolError as error:
        _log.info("tuning: the usual runners stay, untimed: %s", error)
        return None


def _equal(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, Callable[[], Any]]:
    """Those that there is time for, the usual one first, and of OpenVINO's those that give the same as that.

    Unpool's own are not compared: they only round otherwise. That may change an index, and a single one may change many
    outputs, as decision 11 has it.
    """
    start = time.perf_counter()
    expected = calls[USUAL]()
    fitting = int(seconds / (RUNS * (time.perf_counter() - start)))
    left_out = list(calls)[max(fitting, 1) :]
    if left_out:
        _log.info("tuning: untimed, as a run takes too long for the time that is left: %s.", ", ".join(left_out))
    foreign = (PIECES, WHOLE)
    return {
        name: call
        for name, call in calls.items()
        if name not in left_out and (name not in foreign or _agree(name, call, expected))
    }


def _agree(name: str, call: Callable[[], Any], expected: list[Any]) -> bool:
    try:
        strays = max(map(_strays, call(), expected), default=0.0)
    except UnpoolError as error:
        _log.info("tuning: %s fails: %s", name, error)
        return False
    if strays > STRAYS:
        _log.info("tuning: %s gives other results, %.2g of them, and is left out.", name, strays)
    return strays <= STRAYS


def _strays(found: Any, expected: Any) -> float:
    """The share of elements that rounding alone does not explain."""
    if not isinstance(expected, np.ndarray) or expected.dtype.kind not in "biuf":
        return 0.0 if np.array_equal(found, expected) else 1.0
    if found.shape != expected.shape:
        return 1.0
    wide, other = np.asarray(expected, np.float64), np.asarray(found, np.float64)
    near = np.isclose(other, wide, rtol=0, atol=TOLERANCE * np.abs(wide).max(initial=0), equal_nan=True)
    return float(1 - near.mean()) if near.size else 0.0


def _key(told: Told) -> str | None:
    """Under what the result is kept; None where the model has no bytes to be known by."""
    digest = _digest(told.source)
    asked = (told.meaning, told.threads, told.providers, sorted(told.disabled_optimizers))
    versions = onnxruntime.__version__, package().__version__ if is_installed() else ""
    return None if digest is None else repr((digest, asked, *versions))


def _digest(source: ModelSource) -> str | None:
    if isinstance(source, (str, os.PathLike)):
        try:
            with open(source, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:  # whoever loads the model says what is wrong
            return None
    content = content_of(source) if isinstance(source, onnx.ModelProto) else bytes(source)
    return None if content is None else hashlib.sha256(content).hexdigest()
