"""Short forms of the campaigns against sessions with the library."""

from collections import Counter

import pytest

from tools.campaigns import onnxruntime_calls, onnxruntime_memory, onnxruntime_models, session_models
from tools.campaigns.onnxruntime_model_cases import case, every_node
from tools.campaigns.onnxruntime_models import by_library, by_session
from tools.campaigns.processes import run_models

CALLS, MODELS = 60, 25


def total(trials):
    """How often what happened, and the faults."""
    tally, faults = Counter(), []
    for found, wrong in trials:
        tally += found
        faults += wrong
    return tally, faults


@pytest.mark.sample(4)
@pytest.mark.parametrize("chunk", range(4))
def test_random_calls(chunk):
    """Calls of every version, type and layout give the bits of the functions in every size, or their refusals."""
    first = 7_000_000 + chunk * CALLS
    tally, faults = total(map(onnxruntime_calls.trial, range(first, first + CALLS)))
    assert faults == []
    assert tally["equal"] > CALLS
    assert tally["refused"] > CALLS // 4
    assert tally["refused at loading"] > 0


@pytest.mark.sample(4)
@pytest.mark.parametrize("chunk", range(4))
@pytest.mark.parametrize(("first", "make"), [(7_000_000, by_library), (8_000_000, by_session)])
def test_random_models(chunk, first, make):
    """Models of many operators, with bodies and functions, give what onnx's evaluator gives with the functions.

    The session that changes models gives the same for them, node by node in unpool or in onnxruntime.
    """
    first += chunk * MODELS
    tally, faults = total(onnxruntime_models.trial(seed, make) for seed in range(first, first + MODELS))
    assert faults == []
    assert tally["equal"] > MODELS


def test_runs_over_changing_shapes():
    """Shapes that fit give outputs, others an error, and memory is sampled; only long runs show if it grows."""
    samples, refused = onnxruntime_memory.campaign(300, 7)
    assert len(samples) == onnxruntime_memory.SAMPLES
    assert refused > 0
    assert onnxruntime_memory.growth([5, 9, 8, 8, 8, 8, 8, 8, 8, 10]) == 1


def test_models_hold_what_the_campaign_is_about():
    """Bodies, functions, other operators, and all three operators occur in 60 models."""
    models = [case(seed) for seed in range(60)]
    operators = {node.op_type for made in models for node in every_node(made.model)}
    wanted = "MaxPool MaxUnpool ConvTranspose If Loop Scan Conv QuantizeLinear Pad Transpose"
    assert set(wanted.split()) <= operators
    assert any(made.model.functions for made in models)
    assert {made.settings["level"] for made in models} == set(range(4))


def test_a_fault_is_reported(monkeypatch):
    """Sessions without the library differ from the functions, and the campaign says so."""
    monkeypatch.setattr("unpool.onnxruntime.register", lambda options, **settings: None)
    _, faults = total(map(onnxruntime_calls.trial, range(20)))
    assert faults


DYING = """
import json, os, sys
for seed in range(int(sys.argv[3]), 11):
    print(json.dumps([seed]), flush=True)
    if seed == 8 or (seed == 9 and "--alone" not in sys.argv):
        os.abort()
    print(json.dumps([seed, {"equal": 1}, []]))
"""


def test_a_model_that_ends_its_process_is_a_fault():
    """Unless onnxruntime alone ends there, too; the models behind it run in another process."""
    tally = run_models(("-c", DYING), 7, 4)
    assert tally.models == 4
    assert tally.counts == {"equal": 2, "onnxruntime ends the process": 1}
    (fault,) = tally.faults
    assert fault.startswith("model 9: the process ended with -6")


def test_random_models_beside_onnxruntime():
    """What onnxruntime runs, the session runs, with the same outputs, in random models that passes change."""
    tally = run_models(session_models.PROGRAM, 9_000_000, 40)
    assert tally.faults == []
    assert tally.counts["equal"] > 25
    assert {"changed by fuse_activation", "changed by fuse_unpool", "changed by inline"} <= tally.counts.keys()
