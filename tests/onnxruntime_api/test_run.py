"""`run`: which outputs in which order, what may be fed, and whose memory the results are in."""

import gc
import threading
from collections import OrderedDict

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tests.support import models

TYPES = [
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
]
ONNX_TYPES = {"float16": "float16", "float32": "float", "float64": "double"}
TWO = {
    "pools": "(x) => (y, i) y, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)",
    "plain": "(x) => (y, i) y = Neg (x) i = Cast <to = 7> (x)",
}
LAYOUTS = {
    "columns first": lambda x: np.asfortranarray(x),
    "every second": lambda x: np.repeat(x, 2, axis=3)[..., ::2],
    "backwards": lambda x: x[..., ::-1].copy()[..., ::-1],
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "lists": lambda x: x.tolist(),
}


@pytest.fixture(params=["pools", "plain"])
def two(request, ort):
    """A session with two outputs, y of float32 and i of int64."""
    nodes = TWO[request.param].split(" (y, i) ", 1)[1]
    size = 2 if request.param == "pools" else 4
    shape = f"1, 1, {size}, {size}"
    graph = f"two (float[1, 1, 4, 4] x) => (float[{shape}] y, int64[{shape}] i) {{ {nodes} }}"
    return ort.InferenceSession(models.model(graph).SerializeToString())


@pytest.mark.parametrize("names", [None, [], ["z"], ("z",)])
def test_outputs_are_chosen_by_name(session, net, names):
    """None and an empty list stand for all outputs; a list or a tuple names them."""
    made = session.run(names, net.feed)

    assert isinstance(made, list)
    assert [type(z) for z in made] == [np.ndarray]
    assert_array_equal(made[0], net.z, strict=True)


@pytest.mark.parametrize("names", [["y", "i"], ["i", "y"], ["i"], ["y", "y", "i"]])
def test_outputs_come_in_the_order_of_their_names(two, names):
    """The order of the names is that of the results, and a name may be given twice."""
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    by_name = dict(zip(["y", "i"], two.run(None, {"x": x}), strict=True))

    for got, name in zip(two.run(names, {"x": x}), names, strict=True):
        assert_array_equal(got, by_name[name], strict=True)


def test_the_parameters_of_run_go_by_name(session, net):
    """The parameters of `run` have onnxruntime's names."""
    (z,) = session.run(output_names=["z"], input_feed=net.feed, run_options=None)

    assert_array_equal(z, net.z)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_may_be_fed(session, net, layout):
    """Arrays in any order of memory, read-only ones, and nested lists give the same results."""
    (z,) = session.run(None, {"x": LAYOUTS[layout](net.x)})

    assert_array_equal(z, net.z, strict=True)


def test_any_mapping_of_names_may_be_fed(session, net):
    """A feed may be another kind of dict."""
    assert_array_equal(session.run(None, OrderedDict(net.feed))[0], net.z)


def test_an_ort_value_may_be_fed_to_run(ort, session, net):
    """`run` takes an OrtValue in place of an array, gives arrays, and leaves it as it was."""
    value = ort.OrtValue.ortvalue_from_numpy(net.x)

    assert_array_equal(session.run(None, {"x": value})[0], net.z, strict=True)
    assert_array_equal(value.numpy(), net.x)


def test_what_is_fed_is_not_changed(session, net):
    """The caller's array has its values after a run."""
    feed = net.feed
    session.run(None, feed)

    assert_array_equal(feed["x"], net.x, strict=True)


def test_results_of_a_run_outlive_later_runs(session, net):
    """Every run gives arrays of its own, which later runs leave alone."""
    made = [session.run(None, {"x": net.x * factor})[0] for factor in range(1, 6)]

    assert all(np.array_equal(z, net.z * factor) for factor, z in enumerate(made, 1))


def test_results_outlive_their_session(ort, net):
    """The results stay when the session and the feed have gone."""
    (z,) = ort.InferenceSession(net.content).run(None, net.feed)
    gc.collect()

    assert_array_equal(z, net.z)


def test_results_may_be_written_to(session, net):
    """The results are the caller's, and writing to them does not reach the next run."""
    (z,) = session.run(None, net.feed)
    z += 1

    assert_array_equal(session.run(None, net.feed)[0], net.z)


@pytest.mark.changed
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_an_input_that_is_an_output_is_copied(ort, factor):
    """An input that passes through does not share the caller's memory."""
    graph = "g (float[2, 2] x) => (float[2, 2] y, float[2, 2] x) { y = Add (x, ten) }"
    session = ort.InferenceSession(models.model(graph, ten=np.float32(10)).SerializeToString())
    x = np.full((2, 2), factor, np.float32)
    y, passed = session.run(None, {"x": x})

    assert not np.shares_memory(passed, x)
    x[:] = 0
    assert (y[0, 0], passed[0, 0]) == (factor + 10, factor)


def test_several_threads_run_one_session(ort, session, net):
    """Threads that run a session at the same time each get their own results."""
    wrong = []
    options = ort.RunOptions()
    options.logid = "several threads"

    def work(factor):
        for _ in range(10):
            (z,) = session.run(None, {"x": net.x * factor}, options)
            wrong.extend([] if np.array_equal(z, net.z * factor) else [factor])

    threads = [threading.Thread(target=work, args=(factor,)) for factor in range(1, 5)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert wrong == []


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_free_axis_takes_any_size(ort, free_net, count):
    """A model for any number of images runs on each number in turn."""
    session = ort.InferenceSession(free_net.content)
    session.run(None, free_net.feed)

    assert_array_equal(session.run(None, {"x": free_net.x[:count]})[0], free_net.z[:count])


def test_an_empty_batch_gives_an_empty_batch(ort, free_net):
    """No images in, no images out."""
    (z,) = ort.InferenceSession(free_net.content).run(None, {"x": free_net.x[:0]})

    assert z.shape == (0, *free_net.z.shape[1:])


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_of_numpy_comes_and_goes(ort, dtype):
    """Arrays of each type come out with their type and bits."""
    word = ONNX_TYPES.get(dtype, dtype)
    session = ort.InferenceSession(
        models.model(f"g ({word}[2, 3] x) => ({word}[2, 3] z) {{ z = Identity (x) }}").SerializeToString()
    )
    x = np.arange(6).reshape(2, 3).astype(dtype)

    assert_array_equal(session.run(None, {"x": x})[0], x, strict=True)


def test_scalars_are_arrays_without_axes(ort):
    """A scalar goes in and out as an array of no axes."""
    session = ort.InferenceSession(models.model("g (int64[] x) => (int64[] z) { z = Neg (x) }").SerializeToString())
    (z,) = session.run(None, {"x": np.array(3)})

    assert (z.shape, z.dtype, int(z)) == ((), np.int64, -3)


def test_a_model_without_inputs_takes_an_empty_feed(ort):
    """Constants are given for an empty dict."""
    content = models.model("g () => (float[2] z) { z = Constant <value_floats = [1.0, 2.0]> () }").SerializeToString()

    assert_array_equal(ort.InferenceSession(content).run(None, {})[0], np.float32([1, 2]), strict=True)


def test_only_the_path_to_the_outputs_may_run(ort, two):
    """`only_execute_path_to_fetches` gives the wanted output."""
    options = ort.RunOptions()
    options.only_execute_path_to_fetches = True
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)

    assert_array_equal(two.run(["i"], {"x": x}, options)[0], two.run(["i"], {"x": x})[0], strict=True)


def test_branches_run_nested_graphs(ort):
    """An If inside an If picks its branch at run time."""
    graph = """g (bool outer, bool inner) => (float[1] z) {
        z = If (outer) <
            then_branch = then_graph () => (float[1] t) {
                t = If (inner) <
                    then_branch = a () => (float[1] p) { p = Constant <value_floats = [1.0]> () },
                    else_branch = b () => (float[1] q) { q = Constant <value_floats = [2.0]> () }
                >
            },
            else_branch = c () => (float[1] e) { e = Constant <value_floats = [3.0]> () }
        >
    }"""
    session = ort.InferenceSession(models.model(graph).SerializeToString())
    made = [
        session.run(None, {"outer": np.array(outer), "inner": np.array(inner)})[0].item()
        for outer, inner in ((True, True), (True, False), (False, True))
    ]

    assert made == [1, 2, 3]
