"""The command in this process, and small models and pictures in files for it."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from PIL import Image
from typer.testing import CliRunner

from tests.support import models
from unpool.cli.app import app

GREY = "float[1, 1, H, W] x"


def invoke(*words) -> "CliRunner.Result":
    return CliRunner().invoke(app, [str(word) for word in words])


def fails(code: int, *words, says: str) -> None:
    """The command ends with this code and one line on stderr, and writes nothing."""
    before = sorted(Path.cwd().rglob("*"))
    result = invoke(*words)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert says in line
    assert sorted(Path.cwd().rglob("*")) == before


def save_model(path, text, classes="", **constants) -> Path:
    model = models.model(f"g {text}", **constants)
    if classes:
        helper.set_model_props(model, {"classes": classes})
    onnx.save(model, path)
    return Path(path)


def copy_model(path, shape, kind=TensorProto.FLOAT) -> Path:
    info = f"{TensorProto.DataType.Name(kind).lower()}[{', '.join(map(str, shape))}]"
    return save_model(path, f"({info} x) => ({info} y) {{ y = Identity (x) }}")


def pool_model(path) -> Path:
    outputs = "float[1, 1, h, w] y, int64[1, 1, h, w] i"
    return save_model(path, f"({GREY}) => ({outputs}) {{ y, i = MaxPool <{models.POOL}> (x) }}")


def sum_model(path) -> Path:
    return save_model(path, "(float[1, 1, 2, 3] a, float[1, 1, 2, 3] b) => (float[1, 1, 2, 3] y) { y = Add (a, b) }")


def picture(path, pixels) -> np.ndarray:
    array = np.asarray(pixels, np.uint8)
    Image.fromarray(array).save(path)
    return array
