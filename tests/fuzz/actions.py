"""What is done with each file, and what may come of it."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import unpool
from unpool.runtime.lint.lint import lint
from unpool.runtime.measure.random_inputs import random_array
from unpool.runtime.rewrite.canonicalise import canonicalise
from unpool.runtime.rewrite.fix import fix
from unpool.runtime.rewrite.upgrade import upgrade

LARGEST_INPUT = 100_000  # elements; larger ones are not fed
OPEN = 5  # size of an axis that the model leaves open


def load_and_run(content: bytes, **given: Any) -> None:
    """A session, and one run on random inputs if they are small."""
    session = unpool.InferenceSession(content, **given)
    str(session.plan)
    rng = np.random.default_rng(0)
    feed = {}
    for info in session.get_inputs():
        shape = [size if isinstance(size, int) else OPEN for size in info.shape]
        if math.prod(shape) > LARGEST_INPUT or min(shape, default=0) < 0:
            return
        feed[info.name] = random_array(info, shape, rng)
    session.run(None, feed)


ACTIONS: dict[str, Callable[[bytes], object]] = {
    "run": load_and_run,
    "run exact": lambda content: load_and_run(content, exact=True, threads=1),
    "run as ort": lambda content: load_and_run(content, compat="ort"),
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
