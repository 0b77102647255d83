"""What is done with each file, and what may come of it."""

import math
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import unpool
from tools.fuzz.damage import BESIDE
from unpool.graph.random_inputs import random_array
from unpool.onnxruntime.errors import run_session
from unpool.operators.contract import OPERATORS
from unpool.runtime.lint.lint import lint
from unpool.runtime.rewrite.canonicalise import canonicalise
from unpool.runtime.rewrite.fix import fix
from unpool.runtime.rewrite.upgrade import upgrade

LARGEST_INPUT = 100_000  # elements; larger ones are not fed
OPEN = 5  # size of an axis that the model leaves open
WEIGHTS = np.full(10_000, 0.5, np.float32).tobytes()
"""The content of the file beside a model."""


def load_and_run(source: bytes | Path, **given: Any) -> None:
    """A session, and one run on random inputs if they are small."""
    session = unpool.InferenceSession(source, **given)
    str(session.plan)
    feed = feed_of(session)
    if feed is not None:
        run_session(session, None, feed)


def feed_of(session: Any) -> dict[str, Any] | None:
    """Random inputs of a session; None if they are large."""
    rng = np.random.default_rng(0)
    feed = {}
    for info in session.get_inputs():
        shape = [size if isinstance(size, int) else OPEN for size in info.shape]
        if math.prod(shape) > LARGEST_INPUT or min(shape, default=0) < 0:
            return None
        feed[info.name] = random_array(info, shape, rng)
    return feed


def run_file(content: bytes) -> None:
    """As `load_and_run`, from a file with its weights beside it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        path.write_bytes(content)
        path.with_name(BESIDE).write_bytes(WEIGHTS)
        load_and_run(path)


def compare(content: bytes) -> None:
    """A model that onnxruntime runs alone has the same results in partitions, if no operator is unpool's."""
    if any(name.encode() in content for name in (*OPERATORS, "ScatterND")):
        return
    session = unpool.InferenceSession(content, threads=1)
    feed = feed_of(session)
    if feed is None:
        return
    got = run_session(session, None, feed)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        expected = onnxruntime.InferenceSession(content, options).run(None, feed)
    except Exception:  # onnxruntime refuses it
        return
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_equal(np.shape(one), np.shape(other))
        np.testing.assert_allclose(np.float64(one), np.float64(other), rtol=1e-4, atol=1e-4)


ACTIONS: dict[str, Callable[[bytes], object]] = {
    "run": load_and_run,
    "run exact": lambda content: load_and_run(content, exact=True, threads=1),
    "run as ort": lambda content: load_and_run(content, compat="ort"),
    "run a file": run_file,
    "compare": compare,
    "check": lint,
    "fix": fix,
    "upgrade": lambda content: upgrade(content, 22),
    "canonicalise": canonicalise,
}


def attempt(action: str, content: bytes) -> str:
    """What an action came to: "done", or the type of the error of unpool; anything else is raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ACTIONS[action](content)
        except unpool.UnpoolError as error:
            return type(error).__name__
    return "done"
