"""A pass that fails is skipped, and the log says which one."""

import logging
import signal

import numpy as np
import onnxruntime
import pytest

import unpool
from tests.support import models
from unpool.runtime.passes import pipeline

PASSES = (
    *("fuse_unpool_patterns", "reduce_strength", "fuse_snake", "fold_weights", "conv_savings", "convert_conv"),
    *("fold", "fuse", "fuse_normalization", "is_profitable"),
)


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("error", [RuntimeError, KeyError, unpool.UnpoolError])
def test_a_pass_that_fails_is_skipped(name, error, monkeypatch, caplog):
    """The model runs as it was before the pass, and a WARNING names the pass and the exception."""

    def fail(*_):
        raise error("it met what it does not know")

    fail.__name__ = name
    monkeypatch.setattr(pipeline, name, fail)
    model = models.segnet(opset=17)
    x = models.random(1, 3, 12, 10)
    with caplog.at_level(logging.WARNING, "unpool"):
        (ours,) = unpool.InferenceSession(model).run(None, {"image": x})
    (theirs,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"image": x})
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())
    levels = {record.getMessage(): record.levelno for record in caplog.records}
    (text,) = (text for text in levels if "the pass" in text)
    assert f"the pass {name} failed and is skipped: {error.__name__}: " in text
    assert levels[text] == logging.WARNING


class TimeLimitError(Exception):
    pass


class Handler:
    def __call__(self, number, frame):
        raise TimeLimitError

    def method(self, number, frame):
        raise TimeLimitError


HANDLERS = {"object": Handler(), "method": Handler().method, "function": lambda *words: Handler()(*words)}


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS)
def test_an_exception_of_a_signal_handler_is_no_failed_pass(handler, monkeypatch):
    """A time limit that ends while a pass runs ends the loading, with the exception of the handler."""
    monkeypatch.setattr(pipeline, "reduce_strength", lambda *_: signal.raise_signal(signal.SIGINT))
    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(TimeLimitError):
            unpool.InferenceSession(models.segnet(opset=17))
    finally:
        signal.signal(signal.SIGINT, before)
