"""What a run refuses: with onnxruntime's classes of exceptions, so that a script catches what it caught."""

import numpy as np
import onnx
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

from tests.support import models


def ways(ort, session):
    """`run` and `run_with_ort_values`, which take arrays by name here."""

    def with_values(names, feed, options=None):
        values = {name: ort.OrtValue.ortvalue_from_numpy(value) for name, value in feed.items()}
        return session.run_with_ort_values(names, values, options)

    return {"run": session.run, "run_with_ort_values": with_values}


@pytest.fixture(params=["run", "run_with_ort_values"])
def run(request, ort, session):
    """A way to run a session."""
    return ways(ort, session)[request.param]


def test_a_missing_input_is_a_value_error(run):
    """Without an input it is a ValueError that names it."""
    with pytest.raises(ValueError, match="x"):
        run(None, {})


def test_the_name_that_was_fed_instead_is_said(run, net):
    """With another name it is a ValueError that says which was wanted and which came."""
    with pytest.raises(ValueError, match=r"'x'.*'image'"):
        run(None, {"image": net.x})


def test_an_input_too_many_is_an_invalid_argument(run, net):
    """A name that the model does not know is named."""
    with pytest.raises(InvalidArgument, match="image"):
        run(None, {"x": net.x, "image": net.x})


def test_an_unknown_output_is_an_invalid_argument(run, net):
    """An output that the model does not have is named."""
    with pytest.raises(InvalidArgument, match="nowhere"):
        run(["nowhere"], net.feed)


def test_another_type_is_an_invalid_argument(run, net):
    """Another type of elements is refused, not cast; both types are said."""
    with pytest.raises(InvalidArgument, match=r"float"):
        run(None, {"x": net.x.astype(np.float64)})


def test_another_rank_is_an_invalid_argument(run, net):
    """Another number of axes is refused, and the input is named."""
    with pytest.raises(InvalidArgument, match="x"):
        run(None, {"x": net.x[0]})


def test_another_size_is_an_invalid_argument(run, net):
    """Another size along a fixed axis is refused, and both sizes are said."""
    with pytest.raises(InvalidArgument, match=r"(?s)3.*4|4.*3"):
        run(None, {"x": net.x[:, :, :3].copy()})


WORDS = {
    "missing": (lambda net: {}, r"Required inputs \(\['x'\]\) are missing from input feed \(\[\]\)"),
    "another": (lambda net: {"im": net.x}, r"Required inputs \(\['x'\]\) are missing from input feed \(\['im'\]\)"),
    "too many": (lambda net: {"x": net.x, "image": net.x}, "Invalid input name: ?image"),
    "type": (lambda net: {"x": net.x.astype(np.float64)}, "Unexpected input data type"),
    "rank": (lambda net: {"x": net.x[0]}, "Invalid rank for input: x "),
    "size": (lambda net: {"x": net.x[:, :, :3].copy()}, "Got invalid dimensions for input: x "),
}
"""Wrong feeds, and the words of onnxruntime's errors that scripts and tests look for."""


@pytest.mark.parametrize("name", WORDS)
def test_errors_of_a_feed_have_the_words_of_onnxruntime(run, net, name):
    """What is looked for in onnxruntime's message is in ours."""
    feed, words = WORDS[name]
    with pytest.raises(Exception, match=words):
        run(None, feed(net))


def test_the_error_of_an_output_has_the_words_of_onnxruntime(run, net):
    """An output that the model does not have is an invalid output name."""
    with pytest.raises(InvalidArgument, match=r"Invalid output name: ?nowhere"):
        run(["nowhere"], net.feed)


def test_the_error_of_a_provider_has_the_words_of_onnxruntime(session):
    """A provider that nobody knows is an unknown provider type."""
    with pytest.warns(UserWarning, match="InvalidProvider"), pytest.raises(RuntimeError) as caught:
        session.set_providers(["InvalidProvider"])
    assert "Unknown Provider Type: InvalidProvider" in str(caught.value)


@pytest.mark.needs("InferenceSession.get_provider_graph_assignment_info")
def test_the_error_of_an_assignment_has_the_words_of_onnxruntime(session):
    """Who has which node is recorded only if the options say so."""
    with pytest.raises(Fail) as caught:
        session.get_provider_graph_assignment_info()
    assert "'session.record_ep_graph_assignment_info' must be set to \"1\"" in str(caught.value)


def test_the_words_of_onnxruntime_keep_their_spaces(ort):
    """A message that is handed on is handed on as it is written."""
    model = models.model(
        """g (map(int64, float) words, float[1, 1, 4] x) => (float[1, N] z, float[1, 1, 4] u) {
            z = ai.onnx.ml.DictVectorizer <int64_vocabulary = [1, 2]> (words)
            y, i = MaxPool <kernel_shape = [2], strides = [2]> (x)
            u = MaxUnpool <kernel_shape = [2], strides = [2]> (y, i)
        }"""
    )
    model.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 3))
    session = ort.InferenceSession(model.SerializeToString())
    with pytest.raises(Exception, match=r"Unexpected key type  <class 'str'>, it cannot be linked to C type"):
        session.run(None, {"words": {1: 2.0, "b": 3.0}, "x": np.ones((1, 1, 4), np.float32)})


def test_a_run_that_is_told_to_stop_fails(ort, run, net):
    """A run with `terminate` set stops with a Fail that says so."""
    options = ort.RunOptions()
    options.terminate = True

    with pytest.raises(Fail, match="terminate"):
        run(None, net.feed, options)


def test_a_session_runs_again_after_a_stop(ort, session, net):
    """A stop ends one run; with the flag unset the next run gives its results."""
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(Fail):
        session.run(None, net.feed, options)
    options.terminate = False

    assert np.array_equal(session.run(None, net.feed, options)[0], net.z)


def test_a_session_runs_again_after_a_refusal(session, net):
    """What was refused leaves nothing behind."""
    with pytest.raises(InvalidArgument):
        session.run(None, {"x": net.x[0]})

    assert np.array_equal(session.run(None, net.feed)[0], net.z)


@pytest.mark.parametrize("names", ["z", 3])
def test_output_names_are_no_string(session, net, names):
    """A bare string or a number for the list of names is a TypeError."""
    with pytest.raises(TypeError):
        session.run(names, net.feed)


def test_run_options_of_another_kind_are_a_type_error(session, net):
    """What is no RunOptions is a TypeError."""
    with pytest.raises(TypeError):
        session.run(None, net.feed, {"logid": "7"})


@pytest.mark.parametrize("kind", ["plain", "pools"])
def test_a_node_that_fails_while_running(ort, kind):
    """A node that cannot work on its values raises one of onnxruntime's exceptions and names its operator."""
    before = "r = Relu (x)" if kind == "plain" else "r = MaxPool <kernel_shape = [1]> (x)"
    graph = f"g (float[1, 1, N] x, int64[1] to) => (float[M] z) {{ {before} z = Reshape (r, to) }}"
    session = ort.InferenceSession(models.model(graph).SerializeToString())

    with pytest.raises((Fail, InvalidArgument, RuntimeException), match="Reshape"):
        session.run(None, {"x": np.ones((1, 1, 4), np.float32), "to": np.array([3])})
