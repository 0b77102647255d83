"""Features of onnxruntime's sessions that touch a model or a process as a whole, with the library."""

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
import pytest

import unpool
from tests.onnxruntime.test_sessions import SEGMENT, model, unpooled
from tests.support.library_sessions import plain_options
from tests.support.library_sessions import session_options as options
from tests.support.models import random as picture

UP = "g (float[1, 3, h, w] x) => (float[1, 4, h2, w2] z) { z = ConvTranspose <strides = [2, 2]> (x, weights) }"


def outputs(source, given, x):
    """The output of a session."""
    return onnxruntime.InferenceSession(source, given).run(None, {"x": x})[0]


def saved(path, given):
    """The path of SEGMENT as a session of these options has optimized it."""
    given.optimized_model_filepath = str(path)
    given.add_session_config_entry("session.save_model_format", path.suffix[1:].upper())
    onnxruntime.InferenceSession(model(SEGMENT), given)
    return str(path)


@pytest.mark.parametrize("earlier", [options, plain_options])
@pytest.mark.parametrize("later", [options, plain_options])
def test_an_optimized_model_is_an_ordinary_one(tmp_path, earlier, later):
    """What is saved with the library, or without, runs with it and without."""
    path = saved(tmp_path / "optimized.onnx", earlier())
    x = picture(1, 3, 8, 10)
    assert np.array_equal(outputs(path, later(), x), unpooled(x))


def test_the_ort_format_fits_the_session_that_saved_it(tmp_path):
    """A file in the format of onnxruntime names its operators' versions: with the library, those of the library."""
    x = picture(1, 3, 8, 10)
    ours, theirs = (saved(tmp_path / f"{make.__name__}.ort", make()) for make in (options, plain_options))
    assert np.array_equal(outputs(ours, options(), x), unpooled(x))
    for path, given in ((ours, plain_options()), (theirs, options())):
        with pytest.raises(Exception, match="Could not find an implementation for MaxPool"):
            onnxruntime.InferenceSession(path, given)


@pytest.mark.parametrize(
    "window",
    [
        "kernel_shape = [3], strides = [2], pads = [2, 5], ceil_mode = 1",
        "kernel_shape = [1], strides = [5], pads = [0, 3], ceil_mode = 1",
        "kernel_shape = [3], strides = [2], pads = [1, 1], ceil_mode = 1",
        'kernel_shape = [2], strides = [3], auto_pad = "VALID", ceil_mode = 1',
        'kernel_shape = [2], strides = [3], auto_pad = "SAME_LOWER", dilations = [2]',
    ],
)
def test_inferred_sizes_are_those_of_outputs(window):
    """With the sizes that the library infers, onnxruntime plans memory and fusions behind a node."""
    text = f"g (float[1, 1, 10] x) => (float[] z) {{ z = MaxPool <{window}> (x) }}"
    session = onnxruntime.InferenceSession(model(text), options())
    assert session.get_outputs()[0].shape == list(session.run(None, {"x": picture(1, 1, 10)})[0].shape)


def up(weights, x):
    """What UP gives."""
    return unpool.prepare_conv_transpose(weights, strides=[2, 2])(x)


def test_sessions_share_weights():
    """Weights that a program gives to two sessions are theirs, whatever the model has."""
    weights, x = picture(3, 4, 2, 2), picture(1, 3, 5, 7)
    value, given = onnxruntime.OrtValue.ortvalue_from_numpy(weights), options()
    given.add_initializer("weights", value)
    for _ in range(2):
        assert np.array_equal(outputs(model(UP, weights=np.zeros_like(weights)), given, x), up(weights, x))


def test_weights_outlive_a_model_in_memory():
    """A session computes with its own copy when the bytes of the model are gone."""
    weights, x = picture(3, 4, 2, 2), picture(1, 3, 5, 7)
    source = model(UP, weights=weights)
    session = onnxruntime.InferenceSession(source, options())
    del source
    gc.collect()
    assert np.array_equal(session.run(None, {"x": x})[0], up(weights, x))


def test_a_bound_output_of_another_shape_is_refused():
    """Onnxruntime's status says so, and nothing is written."""
    session = onnxruntime.InferenceSession(model(SEGMENT), options())
    binding = session.io_binding()
    y = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((1, 3, 4, 4), np.float32))
    binding.bind_cpu_input("x", picture(1, 3, 8, 8))
    binding.bind_ortvalue_output("z", y)
    with pytest.raises(RuntimeError, match="OrtValue"):
        session.run_with_iobinding(binding)
    assert not y.numpy().any()


def test_sessions_of_other_settings_side_by_side():
    """Each session of a process has its own settings, and one without the library none."""
    window = 'kernel_shape = [2], strides = [3], ceil_mode = 1, auto_pad = "VALID"'
    text = f"g (float[1, 1, 4] x) => (z) {{ z = MaxPool <{window}> (x) }}"
    x = picture(1, 1, 4)
    given = [options(compat="spec"), options(compat="ort"), options(exact=True), plain_options(), options()]
    sessions = [onnxruntime.InferenceSession(model(text), each) for each in given]
    sizes = [session.run(None, {"x": x})[0].shape[2] for session in sessions]
    wanted = [
        unpool.max_pool(x, kernel_shape=[2], strides=[3], ceil_mode=1, auto_pad="VALID", compat=compat).shape[2]
        for compat in ("spec", "ort")
    ]
    assert sizes == [wanted[0], wanted[1], wanted[0], wanted[1], wanted[0]]
    assert wanted[0] != wanted[1]


def test_threads_make_and_end_sessions():
    """Eight threads make sessions, run them and drop them at the same time."""

    def work(number):
        x = picture(1, 3, 9 + number, 11)
        return all(np.array_equal(outputs(model(SEGMENT), options(), x), unpooled(x)) for _ in range(5))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_asynchronous_runs_at_the_same_time():
    """Sixteen runs that wait for each other's threads give their own results."""
    given = options()
    given.intra_op_num_threads = 3
    session, results = onnxruntime.InferenceSession(model(SEGMENT), given), {}
    lock, done = threading.Lock(), threading.Event()
    inputs = [picture(1, 3, 20 + number, 30) for number in range(16)]

    def callback(found, number, error):
        with lock:
            results[number] = error or found[0]
            if len(results) == len(inputs):
                done.set()

    for number, x in enumerate(inputs):
        session.run_async(None, {"x": x}, callback, number)
    assert done.wait(60)
    assert all(np.array_equal(results[number], unpooled(x)) for number, x in enumerate(inputs))


def is_right(session=None):
    """True if a session, or a new one, gives what the functions give; for other processes."""
    x = picture(1, 3, 64, 65)
    if session is None:
        session = onnxruntime.InferenceSession(model(SEGMENT), options())
    return np.array_equal(session.run(None, {"x": x})[0], unpooled(x))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_processes(method):
    """A process that is started makes sessions of its own."""
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(is_right)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_fork_uses_sessions():
    """A child runs a session of one thread that its parent has made and run, and makes others."""
    given = options()
    given.intra_op_num_threads = 1  # threads of onnxruntime do not follow
    session = onnxruntime.InferenceSession(model(SEGMENT), given)
    assert is_right(session)
    child = os.fork()
    if child == 0:
        os._exit(0 if is_right(session) and is_right() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert is_right(session)


def without_arena():
    """Options of a session that takes memory from the system."""
    given = onnxruntime.SessionOptions()
    given.enable_cpu_mem_arena = False
    return given


def with_shared_arena():
    """Options of a session that takes memory from the allocators of the process, if there are any."""
    given = onnxruntime.SessionOptions()
    given.add_session_config_entry("session.use_env_allocators", "1")
    return given


@pytest.mark.parametrize("given", [lambda: None, without_arena, with_shared_arena])
def test_runs_do_not_depend_on_an_arena(given):
    """A first run frees its memory where there is one; later runs, and those with options of their own, are equal."""
    session = unpool.InferenceSession(model(SEGMENT), given())
    x = picture(1, 3, 16, 16)
    first, *later = [session.run(None, {"x": x}, words)[0] for words in (None, None, onnxruntime.RunOptions())]
    for result in later:
        np.testing.assert_array_equal(result, first)


PEAKS = """
import numpy as np, unpool
from pathlib import Path
from tests.support import models

def resident(name):
    words = Path("/proc/self/status").read_text().split()
    return int(words[words.index(f"{name}:") + 1])

steps = " ".join(f"a{n + 1} = ConvTranspose <pads = [1, 1, 1, 1]> (a{n}, w)" for n in range(4))
graph = f"g (float[1, 8, 1024, 1024] a0) => (float[1, 1, 1, 1] z) {{ {steps} z = ReduceMax <axes = [1, 2, 3]> (a4) }}"
session = unpool.InferenceSession(models.model(graph, w=models.random(8, 8, 3, 3)), threads=1)
feed = {"a0": models.random(1, 8, 1024, 1024)}
before, peaks = resident("VmRSS"), []
Path("/proc/self/clear_refs").write_text("5")
for _ in range(3):
    session.run(None, feed)
    peaks.append(resident("VmHWM") - before)
print(peaks[2] / peaks[0])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_memory_of_the_first_run_is_freed():
    """From the second run on, onnxruntime takes a block for all values: alone, beside all that the first one took."""
    done = subprocess.run([sys.executable, "-c", PEAKS], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 1.75  # 2 where nothing is freed; one block of the arena stays
