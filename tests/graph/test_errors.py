"""Errors of a session are unpool's and onnxruntime's at once, and a run that is told to stop stops."""

import pickle

import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as theirs

import unpool
from unpool.graph.errors import error_class

TYPES = [unpool.UnpoolError, unpool.ShapeError, unpool.UnsupportedError, unpool.IndicesError, unpool.FileError]
TYPES += [unpool.MissingFileError, unpool.ModelError]


@pytest.mark.parametrize("ours", TYPES)
@pytest.mark.parametrize("name", ["Fail", "InvalidArgument", "NoSuchFile", "NotImplemented", "InvalidGraph"])
def test_an_error_is_both(ours, name):
    """Either class catches it; its name and its message are ours."""
    error = error_class(ours, name)("MaxPool: wrong")

    assert isinstance(error, ours)
    assert isinstance(error, getattr(theirs, name))
    assert (type(error).__name__, type(error).__module__, str(error)) == (
        ours.__name__,
        ours.__module__,
        "MaxPool: wrong",
    )


@pytest.mark.parametrize("ours", [*TYPES, error_class(unpool.ModelError, "InvalidProtobuf")])
def test_errors_travel(ours):
    """An error comes through a pickle as what it was, also one that is of two classes of onnxruntime."""
    again = pickle.loads(pickle.dumps(error_class(ours, "Fail")("words")))

    assert type(again) is error_class(ours, "Fail")
    assert again.args == ("words",)


def test_a_class_that_onnxruntime_lacks_is_left_out():
    """An older onnxruntime without the class gets ours alone."""
    assert error_class(unpool.ModelError, "Nonesuch") is unpool.ModelError
