"""The rooms of the house: who may import whom, and what an import must not load."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "unpool"

FOUNDATION = {"errors", "geometry", "indices", "dtypes", "arrays", "memory", "allowance", "kept"}
ALLOWED = {
    "errors": set(),
    "geometry": {"errors"},
    "indices": {"errors"},
    "dtypes": {"errors"},
    "arrays": {"errors", "dtypes"},
    "control_groups": set(),
    "allowance": {"control_groups"},
    "kept": set(),
    "memory": {"errors", "geometry", "dtypes", "allowance"},
    "files": {"errors", "files"},
    "operators": {"errors", "geometry", "dtypes", "operators"},
    "kernels": {"control_groups", "geometry", "kept", "kernels"},
    "execute": FOUNDATION | {"operators", "kernels", "execute"},
    "calls": FOUNDATION | {"operators", "execute"},
    "functional": FOUNDATION | {"operators", "execute", "calls"},
    "per_plane": FOUNDATION | {"operators", "kernels", "execute"},
    "torch": FOUNDATION | {"files", "operators", "execute", "functional", "per_plane", "torch"},
    "runtime": FOUNDATION | {"files", "operators", "execute", "functional", "runtime"},
    "warmup": {"errors", "dtypes", "functional"},
    "data": set(),
    "forks": set(),
    "cli": {"errors", "files", "functional", "warmup", "runtime", "data", "cli"},
    "": {"errors", "forks", "functional", "runtime"},
}
HEAVY = ("numba", "torch", "triton", "dask", "onnx", "onnxruntime", "typer", "rich", "PIL")
FILES = sorted(SOURCE.rglob("*.py"))


def room_of(path):
    """The first part of a file's place under src/unpool; the package's own __init__ is the room ''."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py").replace("__init__", "")


def imported_rooms(path):
    """The rooms that a file imports from, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "unpool":
            for alias in node.names:
                yield alias.name if (SOURCE / alias.name).exists() or (SOURCE / f"{alias.name}.py").exists() else ""
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("unpool."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                first, _, rest = alias.name.partition(".")
                if first == "unpool":
                    yield rest.split(".")[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_upward(path):
    """A file imports only from the rooms that its own room may see."""
    assert set(imported_rooms(path)) <= ALLOWED[room_of(path)] | ({""} if room_of(path) == "cli" else set())


def test_every_room_is_in_the_table():
    """A new room has to be written into the table before anyone imports from it."""
    assert {room_of(path) for path in FILES} == set(ALLOWED)


@pytest.mark.parametrize("operator", ["max_pool", "max_unpool", "conv_transpose"])
def test_one_operator_has_one_file_name(operator):
    """An operator's contract and its kernel are found under the same name."""
    assert (SOURCE / "operators" / f"{operator}.py").is_file()
    assert (SOURCE / "kernels" / "cpu" / f"{operator}.py").is_file()


def test_importing_unpool_loads_nothing_heavy():
    """A fresh interpreter that imports unpool has loaded no compiler, framework or runtime."""
    code = f"import sys, unpool; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_public_names_are_pinned():
    """What `unpool` exports changes only on purpose, and every name can be had."""
    import unpool

    assert sorted(unpool.__all__) == [
        "FileError",
        "IndicesError",
        "InferenceSession",
        "MissingFileError",
        "ModelError",
        "ShapeError",
        "UnpoolError",
        "UnsupportedError",
        "conv_transpose",
        "max_pool",
        "max_unpool",
        "prepare_conv_transpose",
        "to_onnx_indices",
        "to_torch_indices",
    ]
    assert all(hasattr(unpool, name) for name in unpool.__all__)
