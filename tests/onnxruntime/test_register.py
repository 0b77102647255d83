"""How a session gets the library: arguments, a second time, and what there is to say where it cannot work."""

import ctypes
import shutil
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import unpool.onnxruntime
from tests.support.library_sessions import plain_options
from unpool.onnxruntime import library

MODEL = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
g (float[1, 1, 4] x) => (float[1, 1, 2] z) { z = MaxPool <kernel_shape = [2], strides = [2]> (x) }
""").SerializeToString()


@pytest.fixture
def options():
    """SessionOptions that log nothing."""
    return plain_options()


def run(given):
    """The output of a session."""
    (z,) = onnxruntime.InferenceSession(MODEL, given).run(None, {"x": np.array([[[1, 3, 2, 0]]], np.float32)})
    return z.tolist()


def test_importing_the_package_does_not_import_onnxruntime():
    """Only the options that are given to it; and the package is an attribute of `unpool` without an import."""
    code = "import sys, unpool; unpool.onnxruntime.get_library_path(); print('onnxruntime' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


def test_registering_twice_is_registering_once(options):
    """A domain may be registered only once, so the second call does nothing; the path alone, neither."""
    unpool.onnxruntime.register(options)
    unpool.onnxruntime.register(options)
    options.register_custom_ops_library(unpool.onnxruntime.get_library_path())
    assert run(options) == [[[3, 2]]]


def test_the_path_alone_registers_with_the_defaults(options):
    """So a call with them does nothing more."""
    options.register_custom_ops_library(unpool.onnxruntime.get_library_path())
    unpool.onnxruntime.register(options)
    assert run(options) == [[[3, 2]]]


@pytest.mark.parametrize(
    ("earlier", "later"), [({}, {"exact": True}), ({"opset": 11}, {}), ({"compat": "ort"}, {"opset": 17})], ids=str
)
def test_a_second_time_with_other_arguments_is_refused(options, earlier, later):
    """The options would keep the first ones."""
    unpool.onnxruntime.register(options, **earlier)
    with pytest.raises(unpool.UnpoolError, match="these options are registered with unpool"):
        unpool.onnxruntime.register(options, **later)


@pytest.mark.parametrize(
    "given",
    [{"compat": "onnx"}, {"index_space": "plane"}, {"opset": "17"}, {"opset": True}, {"opset": 0}, {"exact": 1}],
    ids=str,
)
def test_a_wrong_argument_is_refused(options, given):
    """An UnpoolError names it, and the options stay without the library."""
    with pytest.raises(unpool.UnpoolError, match=next(iter(given))):
        unpool.onnxruntime.register(options, **given)
    unpool.onnxruntime.register(options, exact=True)


@pytest.mark.parametrize("wrong", [None, "model.onnx", onnxruntime.RunOptions()], ids=["None", "a path", "RunOptions"])
def test_what_is_no_options_is_refused(wrong):
    """The error says of which type it is."""
    with pytest.raises(
        unpool.UnpoolError, match=f"expected an onnxruntime.SessionOptions, got .*{type(wrong).__name__}"
    ):
        unpool.onnxruntime.register(wrong)


BROKEN = {
    "missing": (
        lambda package: shutil.rmtree(package / "lib"),
        (library.PATH.name, "there is no library for onnxruntime. Run python -m unpool.build --onnxruntime."),
    ),
    "damaged, or of another processor": (
        lambda package: (package / "lib" / library.PATH.name).write_bytes(b"damaged"),
        ("the library for onnxruntime cannot be loaded (", "Run python -m unpool.build --onnxruntime."),
    ),
    "of other sources, which write what it reads in another way": (
        lambda package: (package / "more.h").write_text("enum { MORE };"),
        ("the library for onnxruntime was built from other sources. Run python -m unpool.build",),
    ),
}
"""What is done to a copy of the package, and words of the refusal."""


@pytest.mark.parametrize("name", BROKEN)
def test_a_library_that_does_not_fit_is_one_sentence(tmp_path, name):
    """With the command that compiles it."""
    damage, words = BROKEN[name]
    copy = tmp_path / "unpool"
    shutil.copytree(library.SOURCES.parent, copy, ignore=shutil.ignore_patterns("__pycache__", "libraries"))
    damage(copy / library.SOURCES.name)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport unpool.onnxruntime as ort; ort.get_library_path()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    said = done.stderr.splitlines()[-1]
    assert all(each in said for each in words), said


def test_an_onnxruntime_that_is_too_old_is_told_so(tmp_path):
    """Its table ends before the functions that the library needs, so nothing of it is called but CreateStatus."""
    path = shutil.copy(library.PATH, tmp_path)  # with variables of its own
    loaded, words = ctypes.CDLL(str(path)), []
    create_status = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)(
        lambda code, text: words.append((code, text.decode())) or 1
    )
    table = (ctypes.c_void_p * 1)(ctypes.cast(create_status, ctypes.c_void_p).value)
    get_api = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(lambda number: ctypes.addressof(table))
    version = ctypes.create_string_buffer(b"1.16.3")
    get_version = ctypes.CFUNCTYPE(ctypes.c_void_p)(lambda: ctypes.addressof(version))
    base = (ctypes.c_void_p * 2)(*(ctypes.cast(each, ctypes.c_void_p).value for each in (get_api, get_version)))
    loaded.RegisterCustomOps.restype = ctypes.c_void_p
    assert loaded.RegisterCustomOps(None, base) == 1
    assert words == [(9, "unpool: onnxruntime 1.17 or later is needed. Install a newer one.")]


def test_a_process_without_a_planner_is_told_so():
    """A program that loads the library itself gets a status for what kernels do not plan, no crash."""
    node = 'unpool.ConvTranspose <activation = "Tanh"> (x, w)'
    text = f"g (float[1, 1, 4] x, float[1, 1, 2] w) => (float[1, 1, 5] z) {{ z = {node} }}"
    imports = '["" : 17, "unpool" : 1]'
    model = parser.parse_model(f"<ir_version: 8, opset_import: {imports}> {text}").SerializeToString()
    code = f"""
import onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
options.register_custom_ops_library({unpool.onnxruntime.get_library_path()!r})
try:
    onnxruntime.InferenceSession({model!r}, options)
except Exception as error:
    print("without Python this node cannot be planned" in str(error))
"""
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "True\n"
