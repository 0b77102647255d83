"""The rooms of the house: who may import whom, and what an import must not load."""

import ast
import graphlib
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "unpool"

FOUNDATION = {
    "errors", "extras", "display", "geometry", "indices", "dtypes", "numerics", "arrays", "memory",
    "shape_cache",
}  # fmt: skip
ALLOWED = {
    "errors": set(),
    "display": set(),
    "numerics": {"errors", "dtypes", "display"},
    "extras": {"errors"},
    "geometry": {"display", "errors"},
    "indices": {"errors"},
    "dtypes": {"errors"},
    "arrays": {"errors", "dtypes"},
    "shape_cache": set(),
    "memory": {"display", "errors", "geometry", "dtypes"},
    "files": {"errors", "files"},
    "images": {"display", "errors", "extras", "memory", "files", "images"},
    "operators": {"display", "errors", "geometry", "dtypes", "operators"},
    "explanation": {"display", "errors", "execute", "geometry", "operators", "explanation"},
    "kernels": {"errors", "extras", "geometry", "kernels", "memory", "shape_cache"},
    "build": {"build", "execute", "functional", "geometry", "kernels", "onnxruntime", "per_plane"},
    "execute": FOUNDATION | {"operators", "kernels", "execute"},
    "calls": FOUNDATION | {"operators", "execute"},
    "functional": FOUNDATION | {"operators", "execute", "calls"},
    "per_plane": FOUNDATION | {"operators", "kernels", "execute"},
    "dask": FOUNDATION | {"operators", "execute", "calls", "functional", "dask"},
    "torch": FOUNDATION | {"files", "operators", "execute", "functional", "per_plane", "torch"},
    "graph": FOUNDATION | {"files", "operators", "graph"},
    "passes": FOUNDATION | {"operators", "execute", "graph", "passes"},
    "onnx_reference": FOUNDATION | {"operators", "execute", "calls", "functional", "graph", "passes"},
    "openvino": FOUNDATION | {"operators", "execute", "graph", "openvino"},
    "onnxruntime": FOUNDATION | {
        "images", "lazy_names", "operators", "kernels", "execute", "graph", "passes", "onnx_reference", "openvino",
        "onnxruntime",
    },
    "runtime": FOUNDATION | {
        "files", "images", "operators", "execute", "functional", "graph", "passes", "onnx_reference", "onnxruntime",
        "openvino", "runtime",
    },
    "tiles": {"runtime"},
    "streams": {"runtime"},
    "warmup": {"errors", "dtypes", "functional"},
    "doctor": {"display", "errors", "extras", "kernels", "onnxruntime"},
    "__main__": {"cli"},
    "picture_input": {"cli", "errors", "images"},
    "data": set(),
    "fork_safety": set(),
    "lazy_names": set(),
    "cli": {
        "display", "errors", "extras", "explanation", "memory", "numerics", "files", "functional", "onnxruntime",
        "warmup", "doctor", "images", "torch", "graph", "runtime", "data", "cli",
    },
    "": {"errors", "explanation", "fork_safety", "functional", "lazy_names", "onnxruntime", "runtime"},
}  # fmt: skip
INNER = {
    "kernels/cpu": (
        "tuning", "vector", "machine", "axes", "fold_axes", "indices", "activation", "normalization", "snake",
        "weights", "max_pool", "max_unpool", "convert", "copy_rows", "conv_transpose", "planner",
    ),
    "kernels/gpu": (
        "elements", "launch", "tiles", "layouts", "max_pool", "max_unpool",
        "conv_transpose", "__init__",
    ),
    "execute/gpu": ("index_checks", "gradients", "__init__"),
    "graph": (
        "shapes", "operators", "errors", "nodes", "data_file", "wire", "weights", "bare", "spec", "torch_operators",
        "graph", "peek", "dynamic_dims", "shape_inference", "narrow_floats", "submodel", "load", "save",
        "random_inputs",
    ),
    "passes": (
        "rewrite", "neighbours", "inline", "upgrade_opset", "index_flow", "fuse_unpool", "reduce_strength",
        "convert_conv", "fuse_conv_transpose", "fuse_snake",
    ),
    "runtime": (
        "onnx_backend", "runtimes", "trace", "measure", "rewrite", "lower", "compare", "lint", "tiles", "streams",
        "cluster", "report",
    ),
    "images": (
        "axes", "checks", "source", "sink", "pixels", "npy", "zarr_store", "zarr",
        "nifti", "raster", "tiff_writer", "tiff_segments", "tiff", "overlay", "formats", "__init__",
    ),
    "onnxruntime": (
        "package", "silence", "errors", "library", "kernel_table", "plans", "engine", "planner", "callbacks",
        "register", "nodes", "options", "session_arguments", "weight_values", "model_cache", "stored_model",
        "ort_values", "source", "differences", "costs", "placement", "reference", "passes", "compile_process",
        "compile_model", "openvino_engine", "tuning", "session_model", "session", "__init__",
    ),
    "openvino": ("package", "fit", "operators", "conversion", "__init__"),
    "dask": ("chunks", "max_pool", "max_unpool", "conv_transpose", "__init__"),
    "torch": ("compat", "ops", "accelerate", "exporting", "__init__"),
    "torch/ops": ("arguments", "register", "eager_fallback", "tensors", "max_unpool", "max_pool", "conv_transpose"),
    "runtime/tiles": ("links", "walk", "tiling", "blending", "rules", "tiler", "run"),
    "runtime/streams": ("checkpoint", "partial_output", "output_transform", "runner", "jobs", "run"),
    "runtime/cluster": ("zarr_outputs", "worker", "tasks", "map_tiles", "__init__"),
    "torch/exporting": (
        "size_forms", "example", "dynamic_shapes", "verify", "nodes", "dynamo", "opset_downgrade", "torchscript",
        "export",
    ),
}  # fmt: skip
"""Rooms inside a room, and files beside them: each may import from those before it."""

MOST_LINES = 500
MOST_PARAMETERS = 8
FREE_IN_PARAMETERS = ("kernels/cpu/vector", "cli")
"""The words of the vector language take one value per word, and the command line one parameter per option."""

HEAVY = ("numpy", "numba", "torch", "triton", "dask", "onnx", "onnxruntime", "openvino", "typer", "rich", "PIL")
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
        elif isinstance(node, ast.Call) and (module := named_module(node)).startswith("unpool."):
            yield module.split(".")[1]


def named_module(call):
    """The module that a call of `import_module` names; empty for other calls."""
    is_import = ast.unparse(call.func).split(".")[-1] == "import_module"
    return call.args[0].value if is_import and isinstance(call.args[0], ast.Constant) else ""


def test_imports_point_upward():
    """A file imports only from the rooms that its own room may see."""
    seen = {str(path.relative_to(SOURCE)): set(imported_rooms(path)) - allowed_in(room_of(path)) for path in FILES}
    assert {path: rooms for path, rooms in seen.items() if rooms} == {}


def test_there_is_no_circle_of_rooms():
    """No room is imported by one that it imports itself, not even inside a function; the front door "" is no room."""
    arrows = {room: set() for room in ALLOWED if room}
    for path in FILES:
        arrows.get(room_of(path), set()).update(set(imported_rooms(path)) - {room_of(path), ""})
    graphlib.TopologicalSorter(arrows).prepare()


def allowed_in(room):
    """The rooms that a room may import from; the commands may also import `unpool` itself."""
    return ALLOWED[room] | ({""} if room == "cli" else set())


def test_inner_imports_point_upward():
    """Inside a room too, an inner room imports only from those before it, so that there is no circle."""
    for house, rooms in INNER.items():
        for path in sorted((SOURCE / house).rglob("*.py")):
            room = path.relative_to(SOURCE / house).parts[0].removesuffix(".py")
            seen = set(inner_rooms(path, f"unpool.{house.replace('/', '.')}")) - {room}
            before = rooms[: rooms.index(room)] if room in rooms or room != "__init__" else ()
            assert seen <= set(before), path


def inner_rooms(path, start):
    """The rooms below `start` that a file imports from."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(start):
            rest = node.module.removeprefix(start).strip(".")
            yield from [rest.split(".")[0]] if rest else [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and (module := named_module(node)).startswith(f"{start}."):
            yield module.removeprefix(start).split(".")[1]


def test_files_are_short():
    """A file of more than 500 lines holds a second concept, which belongs in a file of its own."""
    lengths = {str(path.relative_to(SOURCE)): len(path.read_text().splitlines()) for path in FILES}
    assert {path: length for path, length in lengths.items() if length > MOST_LINES} == {}


def test_functions_take_few_parameters_by_position():
    """What belongs together goes into a function as one record, so that nobody has to count the arguments."""
    found = [(f"{path.relative_to(SOURCE)}: {name}", count) for path in FILES for name, count in positional(path)]
    free = tuple(f"{room}/" for room in FREE_IN_PARAMETERS)
    assert [one for one in found if one[1] > MOST_PARAMETERS and not one[0].startswith(free)] == []


def positional(path):
    """The functions of a file, each with the number of its parameters that can be given by position."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, len(node.args.posonlyargs) + len(node.args.args)


def test_every_room_is_in_the_table():
    """A new room has to be written into the table before anyone imports from it."""
    assert {room_of(path) for path in FILES} == set(ALLOWED)


@pytest.mark.parametrize("operator", ["max_pool", "max_unpool", "conv_transpose"])
def test_one_operator_has_one_file_name(operator):
    """An operator's contract and its kernels are found under the same name."""
    assert (SOURCE / "operators" / f"{operator}.py").is_file()
    for device in ("cpu", "gpu"):
        assert (SOURCE / "kernels" / device / operator / "__init__.py").is_file()


def test_importing_unpool_loads_nothing_heavy():
    """A fresh interpreter that imports unpool has loaded no compiler, framework or runtime."""
    code = f"import sys, unpool; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


PUBLIC = """
FileError IndicesError InferenceSession MissingFileError ModelError ShapeError UnpoolError UnsupportedError
canonicalise check compare conv_transpose explain fix lower map_tiles max_pool max_unpool plan prepare_conv_transpose
raise_pending report to_onnx_indices to_torch_indices upgrade
"""


def test_public_names_are_pinned():
    """What `unpool` exports changes only on purpose, and every name can be had."""
    import unpool

    assert sorted(unpool.__all__) == PUBLIC.split()
    assert all(hasattr(unpool, name) for name in (*unpool.__all__, "doctor", "images", "streams"))


def test_dir_lists_public_names_and_imports_nothing():
    """Completion finds every public name, those too that are imported on first use, and no import of the file."""
    code = f"import sys, unpool; print(dir(unpool)); print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, heavy = map(ast.literal_eval, done.stdout.splitlines())
    assert {"InferenceSession", "SessionOptions", "check", "max_pool", "onnxruntime", "torch", "tiles"} <= set(names)
    assert heavy == []
    assert not {"Any", "TYPE_CHECKING", "import_module", "shape_cache", "fork_safety"} & set(names)


@pytest.mark.parametrize("room", ["", ".torch", ".dask", ".onnxruntime", ".tiles", ".streams", ".images"])
def test_what_dir_lists_is_there(room):
    """Every name that completion offers can be had, and what is exported is offered."""
    module = importlib.import_module(f"unpool{room}")
    assert [name for name in dir(module) if not hasattr(module, name)] == []
    assert set(module.__all__) <= set(dir(module))
    assert not {"Any", "TYPE_CHECKING", "import_module", "require"} & set(dir(module))
