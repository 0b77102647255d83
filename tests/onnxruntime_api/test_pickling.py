"""What of a session can be copied and pickled, and how scripts do it themselves."""

import copy
import importlib
import pickle

import pytest


class Portable:
    """A session that is pickled as the bytes of its model, the way that scripts write it."""

    def __init__(self, module, content):
        self._module, self._content = module, content
        self.session = module.InferenceSession(content)

    def __getstate__(self):
        return {"module": self._module.__name__, "content": self._content}

    def __setstate__(self, state):
        self.__init__(importlib.import_module(state["module"]), state["content"])


def test_a_session_that_is_pickled_by_its_model(ort, net):
    """An object that holds a session and pickles its model comes back and runs."""
    net.assert_right(pickle.loads(pickle.dumps(Portable(ort, net.content))).session)


def test_a_copied_session_runs(session, net):
    """A shallow copy is the same session under another name."""
    net.assert_right(copy.copy(session))


@pytest.mark.parametrize("kind", ["SessionOptions", "RunOptions"])
def test_options_are_not_pickled(ort, kind):
    """Options are a TypeError, which tells a script to make them anew."""
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(getattr(ort, kind)())


def test_a_session_takes_attributes_of_a_script(session):
    """A script may keep what it likes on a session."""
    session.labels = ["cat", "dog"]
    assert session.labels == ["cat", "dog"]
