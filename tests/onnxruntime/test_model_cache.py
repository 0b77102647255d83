"""Later sessions of the same model run no pass: what is kept of a changed model, where, and when it is not used."""

import os
import stat

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.support import models
from unpool import doctor
from unpool.errors import UnpoolError
from unpool.kernels.cpu.machine import host, libraries
from unpool.onnxruntime import InferenceSession, model_cache, passes
from unpool.onnxruntime.passes import Pass

X = models.random(1, 8, 12, 12)


def network(seed=0, slope=0.2):
    """A Conv that is converted, with a large weight, and a ConvTranspose with an activation."""
    return models.model(
        f"""g (float[1, 8, 12, 12] x) => (float[1, 4, 24, 24] z) {{
            a = Conv <pads = [1, 1, 1, 1]> (x, v)
            y = ConvTranspose <strides = [2, 2]> (a, w)
            z = LeakyRelu <alpha = {slope}> (y)
        }}""",
        v=models.random(16, 8, 3, 3, seed=seed),
        w=models.random(16, 4, 2, 2, seed=seed),
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of a cache that is on, and empty; Convs are converted, however small they are."""
    monkeypatch.delenv(model_cache.VARIABLE, raising=False)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(model_cache, "_memory", {})
    monkeypatch.setattr("unpool.passes.convert_conv._pays", lambda *_: True)
    return tmp_path / "cache"


@pytest.fixture
def runs(folder, monkeypatch):
    """A list that grows with every run of the passes."""
    found = []
    own = Pass("of_the_test", lambda model, _: found.append(1) or model, frozenset(), "last")
    monkeypatch.setattr(passes, "PASSES", (*passes.PASSES, own))
    return found


def files_in(folder):
    """The files of the cache of models."""
    return sorted(folder.glob("*/models/models-*/*"))


def leave_process(monkeypatch):
    """Forget what is in memory, as another process."""
    monkeypatch.setattr(model_cache, "_memory", {})


def assert_right(session, model):
    """The plan is that of the passes, and the result that of onnxruntime."""
    assert [row.operator for row in session.plan] == ["ConvTranspose", "ConvTranspose"]
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": X})[0]
    np.testing.assert_allclose(session.run(None, {"x": X})[0], expected, atol=1e-3)


def test_a_clone_without_libraries_has_a_cache(folder, monkeypatch):
    """A part of unpool that does not exist is no reason to keep nothing."""
    monkeypatch.setattr(model_cache, "_ROOMS", (*model_cache._ROOMS, "missing"))
    InferenceSession(network())
    assert len(files_in(folder)) == 1


@pytest.mark.parametrize("in_memory", [True, False], ids=["process", "another"])
def test_a_later_session_runs_no_pass(runs, monkeypatch, in_memory):
    """In the same process, and in another one; plan and results stay the same."""
    first = InferenceSession(network())
    if not in_memory:
        leave_process(monkeypatch)
    second = InferenceSession(network())
    assert len(runs) == 1
    assert list(first.plan) == list(second.plan)
    assert_right(second, network())
    np.testing.assert_array_equal(first.run(None, {"x": X})[0], second.run(None, {"x": X})[0])


def test_large_weights_are_those_of_the_session(runs):
    """A model of the same nodes and other large weights takes the entry, and has its own weights."""
    weights = {"w": models.random(16, 4, 9, 9), "v": models.random(16, 8, 3, 3)}
    text = """g (float[1, 8, 12, 12] x) => (float[1, 4, n, n] z) {
        a = Conv <pads = [1, 1, 1, 1]> (x, v)
        z = ConvTranspose <strides = [2, 2]> (a, w)
    }"""
    for factor in (1, 2):
        model = models.model(text, **{name: factor * array for name, array in weights.items()})
        assert_right(InferenceSession(model), model)
    assert len(runs) == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda: InferenceSession(network(slope=0.3)),
        lambda: InferenceSession(network(seed=1)),
        lambda: InferenceSession(network(), exact=True),
        lambda: InferenceSession(network(), compat="ort"),
        lambda: InferenceSession(network(), disabled_optimizers={"fuse_snake"}),
    ],
    ids=["attribute", "small weight", "exact", "compat", "disabled"],
)
def test_what_passes_depend_on_has_an_entry_of_its_own(runs, other):
    """Nodes, small weights and arguments."""
    InferenceSession(network())
    other()
    assert len(runs) == 2


def test_weights_of_options_count(runs):
    """A weight that options replace is no part of what is kept."""
    InferenceSession(network())
    options = onnxruntime.SessionOptions()
    value = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((16, 4, 2, 2), np.float32))
    options.add_initializer("w", value)
    assert not InferenceSession(network(), options).run(None, {"x": X})[0].any()
    assert len(runs) == 2


DAMAGES = {
    "empty": lambda content: b"",
    "truncated": lambda content: content[:-1],
    "changed": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    "other bytes": lambda content: bytes(len(content)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_no_entry(runs, folder, monkeypatch, damage):
    """The passes run, and the file is written again."""
    InferenceSession(network())
    (file,) = files_in(folder)
    content = file.read_bytes()
    file.write_bytes(damage(content))
    leave_process(monkeypatch)
    assert_right(InferenceSession(network()), network())
    assert len(runs) == 2
    assert file.read_bytes() == content


def test_a_file_of_another_model_is_no_entry(runs, folder, monkeypatch):
    """A file under the name of another one is not what its digest says."""
    InferenceSession(network())
    (file,) = files_in(folder)
    InferenceSession(network(slope=0.3))
    (other,) = set(files_in(folder)) - {file}
    os.replace(other, file)
    leave_process(monkeypatch)
    InferenceSession(network())
    assert len(runs) == 3


@pytest.mark.skipif(os.name == "nt", reason="Windows has no file modes; its profiles are private")
def test_files_are_the_users_own(runs, folder, monkeypatch, caplog):
    """Other users cannot open the folder, and a file that they can write is not read."""
    InferenceSession(network())
    (file,) = files_in(folder)
    assert stat.S_IMODE(file.parents[1].stat().st_mode) == 0o700
    file.chmod(0o666)
    leave_process(monkeypatch)
    InferenceSession(network())
    assert len(runs) == 2


def test_the_variable_switches_it_off(runs, folder, monkeypatch):
    """Every session runs the passes, and nothing is written."""
    monkeypatch.setenv(model_cache.VARIABLE, model_cache.OFF)
    for _ in range(2):
        InferenceSession(network())
    assert len(runs) == 2
    assert not files_in(folder)


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("UNPOOL_MODEL_CACHE", "0 or 1"),
        ("UNPOOL_KERNELS", "auto, shipped or compiled"),
        ("UNPOOL_LEVEL", "one of x86-64-v2, x86-64-v3, x86-64-v4, aarch64, generic"),
    ],
)
def test_a_setting_that_there_is_not_is_refused(folder, monkeypatch, variable, expected):
    """Before any pass: one that asks for the cost of a kernel would leave its node to onnxruntime."""
    monkeypatch.setenv(variable, "off")
    host.level.cache_clear()
    libraries.can_compile.cache_clear()
    with pytest.raises(UnpoolError, match=f"^{variable}: expected {expected}; got 'off'"):
        InferenceSession(network())
    assert not files_in(folder)


def test_doctor_shows_it(folder, monkeypatch):
    """Its folder, entries and bytes, or that it is switched off."""
    InferenceSession(network())
    (file,) = files_in(folder)
    size = file.stat().st_size
    shown = {"models in": str(file.parents[1]), "models": 1, "bytes of models": size, "UNPOOL_MODEL_CACHE": "1"}
    assert doctor.examine().topics["cache of models"] == shown
    monkeypatch.setenv("UNPOOL_MODEL_CACHE", "0")
    none = {"models in": "no folder", "models": 0, "bytes of models": 0, "UNPOOL_MODEL_CACHE": "0"}
    assert doctor.examine().topics["cache of models"] == none


def test_it_stays_small(folder, monkeypatch):
    """The oldest entries go, in memory and on disk, and a large model has none."""
    monkeypatch.setattr(model_cache, "ENTRIES", 2)
    monkeypatch.setattr(model_cache, "MOST_FILES", 3)
    for slope in range(5):
        InferenceSession(network(slope=slope / 10))
    assert len(model_cache._memory) == 2
    assert len(files_in(folder)) == 3
    monkeypatch.setattr(model_cache, "MOST_BYTES", 100)
    before = files_in(folder)
    InferenceSession(network(slope=0.7))
    assert files_in(folder) == before


def test_a_folder_that_cannot_be_written_is_no_error(runs, folder, monkeypatch):
    """A process keeps its own entries then."""
    folder.write_text("a file")
    for _ in range(2):
        assert_right(InferenceSession(network()), network())
    assert len(runs) == 1


def test_warnings_come_every_time(folder, monkeypatch, caplog):
    """A pass that fails is no entry: the log names it in every session."""

    def fail(model, context):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(passes, "PASSES", (*passes.PASSES, Pass("of_the_test", fail, frozenset(), "last")))
    for _ in range(2):
        InferenceSession(network())
    assert sum("of_the_test" in record.getMessage() for record in caplog.records) == 2


def test_the_model_is_parsed_once(folder, tmp_path, monkeypatch):
    """By Python, in the first session and in later ones."""
    onnx.save(network(), tmp_path / "model.onnx")
    found, parse = [], onnx.load_from_string
    monkeypatch.setattr(onnx, "load_from_string", lambda *args, **words: found.append(args[0]) or parse(*args, **words))
    for count in (1, 2):
        InferenceSession(tmp_path / "model.onnx")
        assert found.count((tmp_path / "model.onnx").read_bytes()) == count
