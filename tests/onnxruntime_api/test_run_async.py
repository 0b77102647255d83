"""`run_async`: the results go to a function of the caller, on another thread."""

import gc
import threading
import time
import weakref

import numpy as np
import pytest
from numpy.testing import assert_array_equal

SECONDS = 60
pytestmark = pytest.mark.changed


class Answer:
    """Remembers what it is called with."""

    def __init__(self):
        self.came = threading.Event()

    def __call__(self, results, data, error):
        """The function that `run_async` calls."""
        self.results, self.data, self.error = results, data, error
        self.thread = threading.get_ident()
        self.came.set()

    def wait(self):
        """Itself, once it was called."""
        assert self.came.wait(SECONDS)
        return self


@pytest.fixture
def session(ort, net):
    """A session with the two threads that asynchronous runs need."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    return ort.InferenceSession(net.content, options)


@pytest.mark.parametrize("names", [None, [], ["z"]])
def test_results_come_with_the_callers_data(session, net, names):
    """The function gets the list of results, the data of the caller as they are, and an empty error."""
    answer, data = Answer(), object()
    assert session.run_async(names, net.feed, answer, data) is None
    answer.wait()

    assert (answer.error, answer.data is data, len(answer.results)) == ("", True, 1)
    assert_array_equal(answer.results[0], net.z, strict=True)


def test_the_answer_comes_on_another_thread(session, net):
    """The caller's thread is not the one that calls the function."""
    answer = Answer()
    session.run_async(None, net.feed, answer, None)

    assert answer.wait().thread != threading.get_ident()


def test_the_parameters_of_run_async_go_by_name(ort, session, net):
    """The parameters have onnxruntime's names."""
    answer = Answer()
    session.run_async(
        output_names=["z"], input_feed=net.feed, callback=answer, user_data=7, run_options=ort.RunOptions()
    )

    assert (answer.wait().data, answer.error) == (7, "")


def test_many_runs_at_a_time(session, net):
    """Every answer has the results of its own feed."""
    answers = [Answer() for _ in range(8)]
    for factor, answer in enumerate(answers, 1):
        session.run_async(None, {"x": net.x * factor}, answer, factor)

    for answer in answers:
        assert_array_equal(answer.wait().results[0], net.z * answer.data)


def test_everything_may_be_let_go_of_before_the_answer(ort, net):
    """Session, feed and options live until the function was called, and the feed goes afterwards."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session, run_options, x, answer = (
        ort.InferenceSession(net.content, options),
        ort.RunOptions(),
        net.x.copy(),
        Answer(),
    )
    reference = weakref.ref(x)
    session.run_async(["z"], {"x": x}, answer, None, run_options)
    del x, session, run_options
    gc.collect()

    assert_array_equal(answer.wait().results[0], net.z)
    deadline = time.monotonic() + SECONDS
    while reference() is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert reference() is None


def test_a_missing_input_is_said_at_once(session):
    """A feed without an input is a ValueError of the call itself."""
    with pytest.raises(ValueError, match="x"):
        session.run_async(None, {}, Answer(), None)


@pytest.mark.parametrize("wrong", ["rank", "type", "output"])
def test_what_is_refused_comes_as_an_error(session, net, wrong):
    """A wrong feed or output is words for the function, with no results."""
    answer = Answer()
    x = {"rank": net.x[0], "type": net.x.astype(np.float64), "output": net.x}[wrong]
    session.run_async(["nowhere"] if wrong == "output" else None, {"x": x}, answer, "data")
    answer.wait()

    assert isinstance(answer.error, str)
    assert answer.error
    assert (answer.data, list(answer.results)) == ("data", [])


def test_a_run_that_is_told_to_stop_says_so(ort, session, net):
    """A run with `terminate` set ends in an error that says so."""
    options = ort.RunOptions()
    options.terminate = True
    answer = Answer()
    session.run_async(None, net.feed, answer, None, options)

    assert "terminate" in answer.wait().error


def test_a_session_of_one_thread_runs_nothing_asynchronously(ort, net):
    """With one thread there is none to run on, which is said at once."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(net.content, options)

    with pytest.raises(Exception, match="thread"):
        session.run_async(None, net.feed, Answer(), None)
