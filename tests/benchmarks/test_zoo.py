"""The zoo of networks, without the libraries that define them: selection, files, an engine's process and tables."""

import math
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import parser

from benchmarks import __main__ as command
from benchmarks.architectures import segnet
from benchmarks.rows import ZooRow, read
from benchmarks.worker import Refused
from benchmarks.zoo import engine_process, export, measure
from benchmarks.zoo.architecture_module import ArchitectureModule
from benchmarks.zoo.export import export_missing
from benchmarks.zoo.model_file import ModelFile
from benchmarks.zoo.network import PACKAGES, ROUNDING, Input
from benchmarks.zoo.networks import NETWORKS, matching
from unpool.errors import MissingExtraError

pytestmark = pytest.mark.slow

ROUND_TRIP = """<ir_version: 8, opset_import: ["" : 17]>
    round_trip (float[1, 1, 4, 6] x) => (float[1, 1, 4, 6] z) {
        y, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
        z = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (y, i)
    }"""


@pytest.fixture
def file(tmp_path):
    """A network that was exported: an unpooling of a pooling."""
    found = ModelFile(tmp_path, "tiny")
    x = np.arange(24, dtype=np.float32).reshape(1, 1, 4, 6)
    y = np.where((np.arange(4) % 2 == 1)[:, None] & (np.arange(6) % 2 == 1), x, np.float32(0))
    onnx.save(parser.parse_model(ROUND_TRIP), found.model)
    found.save_arrays({"x": x}, [y])
    return found


def row(network, engine, milliseconds, group="ConvTranspose", **others):
    """What an engine did with a network, and half as much as its 95th percentile on top."""
    filled = ZooRow(
        network, group, "1x3x8x8", "4×ConvTranspose", engine, "1", "A CPU", 2, 60, 0.5, 0.5, 0.25,
        milliseconds / 1e3, 1.5e-3 * milliseconds, 7_000_000, 1e-6, "", "onnxruntime 3, up 1", "2030-01-02",
    )  # fmt: skip
    return replace(filled, **others)


ROWS = [
    row("won", "unpool", 1), row("won", "unpool_tuned", 0.5), row("won", "onnxruntime", 4), row("won", "openvino", 2),
    row("lost", "unpool", 8, "dynamic sizes"), row("lost", "onnxruntime", 4, "dynamic sizes"),
    row("lost", "openvino", 0, "dynamic sizes", runs=0, reason="RuntimeError: no"),
    row("absent", "export", 0, runs=0, reason="ImportError: no module"),
]  # fmt: skip


def test_names_select_networks():
    """Each name is a part of those it selects; none selects all, and an unknown one is an error."""
    assert matching([]) == list(NETWORKS)
    assert [network.name for network in matching(["tv_squeeze", "hf_bert"])] == ["hf_bert", "tv_squeezenet"]
    with pytest.raises(ValueError, match="expected networks, found none for alexnet"):
        matching(["tv_", "alexnet"])


def test_inputs_are_the_same_in_every_process():
    """Integers stay below their limit."""
    image, labels = Input("x", (2, 3)), Input("x", (50,), high=7)

    assert np.array_equal(image.array(), image.array())
    assert image.array().dtype == np.float32
    assert labels.array().dtype == np.int64
    assert set(labels.array()) <= set(range(7))


def test_missing_packages_are_named(tmp_path, monkeypatch, capsys):
    """The error has the command that installs them; a network that was exported needs none."""
    monkeypatch.setitem(PACKAGES, "tv", "a_missing_module")
    with pytest.raises(MissingExtraError, match=r"a_missing_module is not installed\. .*pip install '\.\[zoo\]'"):
        export_missing(matching(["tv_squeezenet"]), tmp_path)
    assert command.main(["zoo", "tv_squeezenet", "--only", "export", "--folder", str(tmp_path)]) == 2
    assert "pip install '.[zoo]'" in capsys.readouterr().err

    (tmp_path / "tv_squeezenet.onnx").touch()
    (tmp_path / "tv_squeezenet.npz").touch()
    export_missing(matching(["tv_squeezenet"]), tmp_path)


def test_a_failure_is_written_down(tmp_path, monkeypatch):
    """The next attempt may succeed and removes it."""
    monkeypatch.setitem(PACKAGES, "own", "numpy")
    monkeypatch.setattr(export, "_export_in_process", lambda *_: "RuntimeError: no\n such layer")
    networks = matching(["own_segnet1d_mu"])
    export_missing(networks, tmp_path)
    assert ModelFile(tmp_path, "own_segnet1d_mu").reason == "RuntimeError: no such layer"

    monkeypatch.setattr(export, "_export_in_process", lambda *_: "")
    export_missing(networks, tmp_path)
    assert ModelFile(tmp_path, "own_segnet1d_mu").reason == ""


def test_own_networks_are_exported(tmp_path):
    """The file has a MaxUnpool for each level, and unpool computes what torch did."""
    assert export.export("own_segnet1d_mu", tmp_path) == ""
    file = ModelFile(tmp_path, "own_segnet1d_mu")

    assert file.is_complete
    assert file.summary() == ("4×MaxPool+Indices 4×MaxUnpool", "MaxUnpool or Indices")
    assert file.shapes() == "4x12x1000"
    assert engine_process.load("unpool", file, 1).error < 1e-5


def test_architectures_are_the_same_in_torch():
    """With classes the output is a label for each position."""
    import torch

    module = ArchitectureModule(segnet(((4,), (6, 8))), (1, 3, 10, 9), classes=True)

    assert len(module.weights) == 2 * 7
    assert module(torch.zeros(1, 3, 10, 9)).shape == (1, 10, 9)
    assert module(torch.zeros(2, 3, 7, 5)).dtype == torch.int64


def test_an_engine_loads_runs_and_is_timed(file):
    """The first run is compared with torch's result."""
    engine_process.start("onnxruntime", 1)
    loaded = engine_process.load("onnxruntime", file, 1)

    assert loaded.error == 0
    assert min(loaded.load, loaded.first) > 0
    assert len(engine_process.turn(3, 0, math.inf)) == 3
    assert len(engine_process.turn(3, 0, 0)) == 1
    assert engine_process.peak() >= 0


def test_an_engine_with_another_result_is_not_timed(file):
    """Nor one that cannot load the model."""
    inputs, (y,) = file.load_arrays()
    file.save_arrays(inputs, [y + 1])

    assert "another result than torch: error" in engine_process.load("unpool", file, 1).why
    assert isinstance(engine_process.load("openvino", file, 1), Refused)


def test_differences_are_measured():
    """Numbers that are not finite differ, and so do shapes; so many labels as the share may differ."""
    one = np.float32([1, 2])
    assert engine_process.difference([one], [one[:1]]) == math.inf
    assert engine_process.difference([one], [one, one]) == math.inf
    assert engine_process.difference([one], [np.float32([1, np.nan])]) == math.inf
    labels = np.zeros(201, np.int64)
    for count, error in ((10, 0), (11, 1)):
        assert engine_process.difference([labels], [np.where(np.arange(201) < count, 1, labels)], ROUNDING) == error


def test_networks_are_measured(file, tmp_path, capsys):
    """Every engine in a process of its own; a network that was not exported has a row with the reason."""
    absent = ModelFile(tmp_path, "absent")
    absent.fail("ImportError: no")
    saved = []
    rows = measure.measure([file, absent], 1, 1, saved.append, turns=1)

    assert [(row.network, row.engine) for row in rows] == [
        ("absent", "export"), ("tiny", "unpool"), ("tiny", "unpool_tuned"), ("tiny", "onnxruntime"),
        ("tiny", "openvino"),
    ]  # fmt: skip
    assert [row.runs > 4 for row in rows] == [False, True, True, True, False]
    assert all(0 < row.median <= row.p95 for row in rows[1:4])
    assert [row.steps for row in rows[1:4]] == ["MaxPool->y, MaxUnpool->z", "MaxPool->y, MaxUnpool->z", ""]
    assert [bool(row.reason) for row in rows] == [True, False, False, False, True]
    assert rows[1].operators == "1×MaxPool+Indices 1×MaxUnpool"
    assert saved == [rows[:1], rows[1:]]
    assert "round 1: tiny: unpool: " in capsys.readouterr().err


def test_command_measures_and_keeps_results(tmp_path, monkeypatch, capsys):
    """Without export; the table is printed, and the rows are kept."""
    monkeypatch.setattr(measure, "measure", lambda files, threads, rounds, save: save(ROWS) or ROWS)
    arguments = ["zoo", "tv_squeezenet", "--only", "measure", "--folder", str(tmp_path), "--results", str(tmp_path)]

    assert command.main(arguments) == 0
    assert read(tmp_path / "zoo.csv", ZooRow) == ROWS
    assert "| lost | 1x<wbr>3x<wbr>8x<wbr>8 |" in capsys.readouterr().out
