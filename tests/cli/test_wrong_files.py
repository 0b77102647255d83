"""Every command on every kind of file that is no ONNX model: it works, or gives one clear error and its exit code."""

import shutil
import zipfile

import numpy as np
import onnx
import onnxruntime
import pytest
from typer.testing import CliRunner

from tests.support import models
from unpool.cli.app import app
from unpool.cli.errors import OK, UNFIT

COMMANDS = {
    "inspect": ("inspect", "FILE"),
    "inspect --json": ("inspect", "FILE", "--json"),
    "check": ("check", "FILE"),
    "check --json": ("check", "FILE", "--json"),
    "bench": ("bench", "FILE", "-i", "x.npy", "--iterations", "1", "--warmup", "0", "--threads", "1"),
    "report": ("report", "FILE", "-i", "x.npy", "-o", "out.html", "--iterations", "0"),
    "compare": ("compare", "FILE"),
    "compare with another": ("compare", "model.onnx", "FILE"),
    "run": ("run", "FILE", "-i", "x.npy", "-o", "out.npy"),
    "run in tiles": ("run", "FILE", "-i", "x.npy", "-o", "out.npy", "--tile", "4x4"),
    "fix": ("fix", "FILE", "-o", "out.onnx"),
    "lower": ("lower", "FILE", "--for", "any", "-o", "out.onnx"),
    "upgrade": ("upgrade", "FILE", "--opset", "22", "-o", "out.onnx"),
    "canonicalise": ("canonicalise", "FILE", "-o", "out.onnx"),
    "compile": ("compile", "FILE", "-o", "out.onnx"),
}
KINDS = {
    "model.ort": "a model in the format of onnxruntime (.ort).",
    "ort.onnx": "a model in the format of onnxruntime (.ort).",
    "truncated.onnx": "something else, or not all of it (",
    "page.onnx": "a web page. Download the file itself, not the page that shows it.",
    "pointer.onnx": "a pointer of Git LFS, not the file that it stands for. Run: git lfs pull.",
    "empty.onnx": "nothing, for it is empty. Download or export it again.",
    "text.onnx": "text that begins with 'a model would be here a model '.",
    "weights.pt": "a zip archive, as torch.save writes.",
    "arrays.npz": "a zip archive,",
    "x.npy": "an array of NumPy. Name the ONNX file.",
    "picture.png": "a PNG image. Name the ONNX file.",
    "folder": "a folder. Name the file in it.",
    "missing.onnx": "no such file. Check the path.",
}
"""What each file is said to be."""

RUNS_ORT = {"run", "inspect", "inspect --json", "bench"}
"""A session takes a .ort file by its name; the others need the nodes of an ONNX file, which it does not hold."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, and files that are none."""
    folder = tmp_path_factory.mktemp("wrong")
    text = f"g (float[n, 2, h, w] x) => (float[n2, c2, h2, w2] z) {{ y, i = MaxPool <{models.POOL}> (x)"
    onnx.save(models.model(f"{text} z = MaxUnpool <{models.POOL}> (y, i) }}"), folder / "model.onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(folder / "model.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(folder / "model.onnx", options)
    (folder / "ort.onnx").write_bytes((folder / "model.ort").read_bytes())
    (folder / "truncated.onnx").write_bytes((folder / "model.onnx").read_bytes()[:-9])
    (folder / "page.onnx").write_text("<!DOCTYPE html><title>404</title>")
    (folder / "pointer.onnx").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a")
    (folder / "empty.onnx").touch()
    (folder / "text.onnx").write_text("a model would be here\n" * 20)
    with zipfile.ZipFile(folder / "weights.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
    np.savez(folder / "arrays.npz", w=np.zeros(3))
    np.save(folder / "x.npy", models.random(1, 2, 6, 8))
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))
    (folder / "folder").mkdir()
    return folder


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_one_error_or_a_result(folder, monkeypatch, tmp_path, command, name):
    """One line with the name of the file and a way out, exit code 3, no traceback, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    for whole in ("model.onnx", "x.npy"):
        shutil.copy(folder / whole, whole)
    file = folder / name
    done = CliRunner().invoke(app, [str(file) if word == "FILE" else word for word in COMMANDS[command]])
    if file.name == "model.ort" and command in RUNS_ORT:
        assert done.exit_code == OK, done.output
        assert "cannot run it" not in done.output
        return
    assert isinstance(done.exception, SystemExit), done.exception
    assert (done.exit_code, done.stdout) == (UNFIT, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {file}: expected an ONNX model, got {KINDS[name]}")
    assert line.endswith(".")
    assert line.count(". ") >= (name != "missing.onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "x.npy"]
