"""Entries of a session's configuration, for programs that cannot call `register`."""

import onnx
import onnxruntime
import pytest

import unpool.onnxruntime
from tests.onnxruntime.test_compile import compiled as compiled
from tests.support.c_program import needs_linux, needs_shipped_kernels, needs_zig, run_host
from tests.support.library_sessions import plain_options

POOL = """<ir_version: 8, opset_import: ["" : 16]>
test (float[1, 1, 4, 4] x) => (float[1, 1, h, w] y, int64[1, 1, h, w] i) {
    y, i = MaxPool <kernel_shape = [2, 2]> (x) }"""


def session(entries=(), late=()):
    """A session with entries that were set before the library, and after it."""
    options = plain_options()
    for name, value in entries:
        options.add_session_config_entry(f"unpool.{name}", value)
    options.register_custom_ops_library(unpool.onnxruntime.get_library_path())
    for name, value in late:
        options.add_session_config_entry(f"unpool.{name}", value)
    return onnxruntime.InferenceSession(onnx.parser.parse_model(POOL).SerializeToString(), options)


@pytest.mark.parametrize(("name", "value", "words"), [
    ("exact", "yes", "0, 1"),
    ("compat", "onnxruntime", "spec, ort"),
    ("compat", "or", "spec, ort"),
    ("index_space", "a_value_of_more_than_16_characters", "auto, output, inferred"),
    ("trust_plans", "true", "0, 1"),
    ("domains", "ai.onnx", "all, unpool"),
    *(("opset", value, "the number of an opset") for value in ("0", "-1", "16x")),
])  # fmt: skip
def test_an_unknown_value_is_refused(name, value, words):
    """The library says which there are, when it is registered."""
    with pytest.raises(Exception, match=rf"the entry unpool\.{name} is (one of )?{words}\."):
        session([(name, value)])


def test_an_entry_after_the_library_is_refused():
    """If it would change a setting, which are read when the library is registered."""
    with pytest.raises(Exception, match=r"unpool\.compat was set to ort after the library was registered\. Set it bef"):
        session(late=[("compat", "ort")])
    assert session([("compat", "ort")], late=[("compat", "ort")])


def test_a_variable_stands_for_an_entry(monkeypatch):
    """For hosts whose sessions take no entries; an entry counts more."""
    monkeypatch.setenv("UNPOOL_COMPAT", "onnxruntime")
    with pytest.raises(Exception, match=r"the variable UNPOOL_COMPAT is one of spec, ort\."):
        session()
    assert session([("compat", "ort")])


@needs_shipped_kernels
@needs_linux
@needs_zig
@pytest.mark.parametrize(("entry", "words"), [
    ("unpool.exact=1", ""),
    ("unpool.compat=onnx", "unpool: the entry unpool.compat is one of spec, ort."),
    ("unpool.trust_plans=0", "set the session's configuration entry unpool.trust_plans to 1."),
])  # fmt: skip
def test_entries_of_a_c_program(compiled, host, entry, words, tmp_path):
    """A process without Python has the same entries, and the same refusals."""
    path, (x,), _ = compiled["volumes"]
    done, _ = run_host(host, path, x, tmp_path, entry=entry)
    assert done.returncode == (1 if words else 0), done.stderr
    assert words in done.stderr
