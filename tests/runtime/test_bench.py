"""`unpool bench`: how times are taken, whose they are, and what is printed about them."""

import json
import re
from typing import NamedTuple

import numpy as np
import onnx
import pytest

from tests.support import models
from tests.support.command import invoke
from unpool.cli.commands.bench import report_lines
from unpool.errors import UnpoolError
from unpool.graph import load
from unpool.graph.random_inputs import random_feed
from unpool.runtime.measure.bench import ModelTimes, NodeTime, _named, bench
from unpool.runtime.measure.timing import Effort, Timing, measure, summarize
from unpool.runtime.runtimes import open_session


def test_summary_is_the_median_and_its_spread():
    """Half of the samples are below the median, a fifth below p20 and a fifth above p80, whatever their order."""
    samples = np.random.default_rng(0).permutation(np.arange(1.0, 102.0))

    assert summarize(list(samples), 7.0) == Timing(51.0, 21.0, 81.0, 96.0, 7.0, 101)


def test_measure_repeats_as_often_as_asked():
    """The first call, the warm-up and the repetitions are calls; long calls are not bundled."""
    calls = []

    def slow():
        calls.append(None)
        sum(range(20_000))

    timing = measure(slow, Effort(warmup=2, repetitions=5, seconds=0, limit=60))

    assert timing.samples == 5
    assert len(calls) == 8
    assert 0 < timing.p20 <= timing.median <= timing.p80


def test_measure_stops_at_its_limit():
    """A call longer than the limit is warmed up by its first call and gives one sample."""
    calls = []
    timing = measure(lambda: calls.append(sum(range(100_000))), Effort(repetitions=50, limit=0))

    assert (timing.samples, len(calls)) == (1, 2)


def saved(folder, model):
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


@pytest.fixture
def segnet(tmp_path):
    return saved(tmp_path, models.segnet())


class Value(NamedTuple):
    """An input, as a session has it."""

    name: str
    shape: list
    type: str


@pytest.mark.slow
def test_bench_times_a_model(segnet):
    """Nodes are those of onnxruntime's profile and their shares add up; both are timed and agree; ours have peers."""
    times = bench(segnet, {"image": models.random(1, 3, 12, 10)}, Effort(1, 3, 0, 60), threads=1)

    own = [node.node for node in times.nodes if node.runner == "unpool"]
    assert own == ["MaxPool->p1", "MaxPool->p2", "MaxUnpool->u2", "ConvTranspose->d2", "MaxUnpool->u1"]
    assert sum(node.share for node in times.nodes) == pytest.approx(1)
    known = {node.node for node in times.nodes if node.onnxruntime is not None}
    assert {"MaxPool->p1", "MaxPool->p2", "MaxUnpool->u2", "MaxUnpool->u1"} <= known
    assert times.ratio == times.onnxruntime.median / times.unpool.median
    assert times.unpool.samples == 3
    assert times.difference < 1e-4
    assert times.threads == 1
    assert 0 < times.operator_share < 1


@pytest.mark.slow
def test_bench_says_that_onnxruntime_refuses(tmp_path):
    """A model that onnxruntime cannot run is timed here alone, with its words."""
    path = saved(tmp_path, models.bfloat16())
    times = bench(path, random_feed(open_session(path).get_inputs(), {}), Effort(0, 2, 0, 60))

    assert times.onnxruntime is None
    assert times.ratio is None
    assert report_lines(times)[-1] == f"onnxruntime cannot run it: {times.refusal}"


@pytest.mark.slow
def test_bench_command_prints_steps_and_the_whole(segnet):
    """One line per step, then the whole model with both times and who wins."""
    done = invoke("bench", segnet, "--iterations", 2, "--warmup", 0, "--threads", 1)

    assert done.exit_code == 0, done.stderr
    assert "MaxUnpool->u1" in done.stdout
    assert "whole model, 1 thread: unpool " in done.stdout
    *_, whole, ceiling = done.stdout.splitlines()
    assert " times faster" in whole or " times slower" in whole
    assert re.match(r"MaxPool, MaxUnpool and ConvTranspose take \d+% of onnxruntime's time: without them it", ceiling)


def test_bench_command_writes_json(segnet, tmp_path):
    """The same as JSON, from a file of one's own."""
    np.save(tmp_path / "x.npy", models.random(1, 3, 12, 10))
    done = invoke("bench", segnet, "-i", tmp_path / "x.npy", "--iterations", 2, "--warmup", 0, "--json")

    found = json.loads(done.stdout)
    assert found["is_equal"] is True
    assert found["unpool"]["samples"] == 2
    assert found["ratio"] > 0


def test_bench_command_asks_for_open_sizes(tmp_path):
    """A size that the model leaves open has to be given."""
    done = invoke("bench", saved(tmp_path, models.segnet(size="h, 10")))

    assert done.exit_code == 3
    assert "expected sizes for h, got none. Give the input itself, or numbers such as --size h=64 (" in done.stderr


def test_random_feed_has_the_types_of_the_inputs():
    """Shapes come from the model and the given sizes; integers are small enough to be indices."""
    infos = {"a": ([1, "n"], "float16"), "b": ([3], "int64"), "c": ([], "bool")}
    feed = random_feed([Value(name, shape, f"tensor({kind})") for name, (shape, kind) in infos.items()], {"n": 5})

    shapes = {"a": (1, 5), "b": (3,), "c": ()}
    assert {name: (array.shape, str(array.dtype)) for name, array in feed.items()} == {
        name: (shapes[name], kind) for name, (_, kind) in infos.items()
    }
    assert set(feed["b"]) <= {0, 1}
    with pytest.raises(UnpoolError, match="expected sizes with names or numbers, got one without"):
        random_feed([Value("a", [None], "tensor(float)")], {})


def test_a_model_too_large_for_a_message_is_timed_by_its_path(tmp_path, monkeypatch):
    """Onnxruntime opens the file itself where weights of more than a message would have to become part of the model."""
    path = tmp_path / "m.onnx"
    model = models.model("m (float[64, 256] x) => (float[64, 256] y) {y = Add (x, w)}", w=models.random(64, 256))
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert isinstance(_named(str(path)), bytes)
    monkeypatch.setattr(load, "MOST_STORED", 1000)

    assert _named(str(path)) == str(path)


def test_losses_and_differences_are_printed():
    """A slower model is called slower, and results that differ are not passed over."""
    fast, slow = Timing(1.0, 0.9, 1.1, 1.2, 2.0, 5), Timing(2.0, 1.9, 2.1, 2.2, 3.0, 5)
    steps = (NodeTime("pool", "unpool", 2.0, 1.0, 1.0),)
    lines = report_lines(ModelTimes(slow, fast, "", 0.5, 2, steps, operator_share=0.2))

    assert lines[2].split() == ["pool", "unpool", "2000.000", "100.0%", "1000.000", "0.50"]
    assert lines[-3].endswith("unpool is 2.00 times slower")
    assert lines[-2].endswith("20% of onnxruntime's time: without them it would be 1.25 times faster")
    assert "differ by up to 0.5" in lines[-1]


@pytest.mark.slow
def test_bench_tunes_for_the_sizes_of_the_run(tmp_path):
    """With --tune the session knows the dynamic sizes, so that it is tuned: by its nodes, or the model in OpenVINO."""
    path = saved(tmp_path, models.segnet(size="h, w"))
    words = ("--iterations", 1, "--threads", 1, "--tune", "--json", "--size", "h=64", "--size", "w=48")
    done = invoke("bench", path, *words)

    assert done.exit_code == 0, done.output
    runners = {node["runner"] for node in json.loads(done.stdout)["nodes"]}
    assert runners in ({"unpool", "onnxruntime"}, {"openvino"})
    assert "tune has no effect" not in done.stderr
