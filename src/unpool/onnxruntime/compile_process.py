"""Compiling for another level of processors, in a process of its own, as a process has the kernels of one level."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpool import errors
from unpool.errors import UnpoolError
from unpool.execute.plans import shipped_levels, usable_levels

if TYPE_CHECKING:
    from onnx import ModelProto

_CODE = """
import sys
from unpool.onnxruntime.compile_model import compile
from unpool.onnxruntime.compile_process import answer
answer(sys.argv[1], compile)
"""
_MODEL, _OPTIONS, _RESULT, _ERROR = "model.onnx", "options.json", "result.onnx", "error.json"


def check_level(level: str) -> None:
    """An UnpoolError unless the kernels of a level are here, and run on this processor, where they pack weights."""
    shipped, usable = shipped_levels(), usable_levels()
    if level in usable:
        return
    if level in shipped:
        raise UnpoolError(
            f"compile: this processor cannot run the kernels of {level}, which pack the weights. Compile on one that "
            f"can, or for {usable[-1]}."
        )
    raise UnpoolError(
        f"compile: this installation has the kernels of {', '.join(shipped)}, not of {level!r}. Install a wheel, which "
        "has all levels of its platform, or build them by python -m unpool.build --level."
    )


def compile_in_process(model: "ModelProto", level: str, options: dict[str, Any]) -> "ModelProto":
    """The compiled model, by a process that uses the kernels of a level; its errors are raised here."""
    import onnx

    with tempfile.TemporaryDirectory() as name:
        folder, package = Path(name), Path(errors.__file__).parents[1]
        onnx.save(model, folder / _MODEL, save_as_external_data=True)  # of any size
        (folder / _OPTIONS).write_text(json.dumps(options, default=_plain))
        done = subprocess.run(
            [sys.executable, "-P", "-c", _CODE, name],
            env=os.environ | {"UNPOOL_LEVEL": level, "PYTHONPATH": os.pathsep.join([str(package), *sys.path])},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        if (folder / _ERROR).is_file():
            kind, text = json.loads((folder / _ERROR).read_text())
            raise getattr(errors, kind)(text)
        if done.returncode:
            last = (done.stderr.splitlines() or ["it said nothing"])[-1]
            raise UnpoolError(f"compile: the process for {level} ended with exit code {done.returncode}: {last}")
        return onnx.load(folder / _RESULT)


def _plain(value: Any) -> Any:
    """Shapes for JSON, which has no mappings, sequences and ints of other packages."""
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, Iterable) else int(value)


def answer(name: str, compile: Callable[..., "ModelProto"]) -> None:
    """Compile the model in a folder, in that process."""
    import onnx

    folder = Path(name)
    try:
        compiled = compile(folder / _MODEL, **json.loads((folder / _OPTIONS).read_text()))
        onnx.save(compiled, folder / _RESULT, save_as_external_data=True)
    except UnpoolError as error:
        (folder / _ERROR).write_text(json.dumps([type(error).__name__, str(error)]))
