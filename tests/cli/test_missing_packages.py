"""Every command and function without each optional package: it works, or one line says what to install.

A row says which modules it needs. It works without all the others, and without any of its own it is refused.
"""

import re
import tomllib

import nibabel
import numpy as np
import onnx
import pytest
import tifffile
import zarr
from packaging.requirements import Requirement

from tests.docs.blocks import ROOT
from tests.support import models
from tests.support.missing_packages import processes, run_command, run_commands, run_python
from tests.support.page_files import NETS
from unpool.cli.app import COMMANDS
from unpool.cli.errors import OK, UNFIT, UNSUPPORTED
from unpool.extras import EXTRAS, extra_of, install_line

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULES = {"pillow": "PIL", "scikit-image": "skimage"}
FOR_DEVELOPERS = {"bench", "conformance", "docs", "test", "release", "zoo", "all"}
OPTIONAL = {
    MODULES.get(name, name)
    for extra, packages in PROJECT["optional-dependencies"].items()
    if extra not in FOR_DEVELOPERS | {"jit"}  # without Numba, tests/build says what is missing
    for name in (Requirement(package).name for package in packages)
    if name != PROJECT["name"]
}
RUN = set(EXTRAS["run"][1])

WITH_PACKAGES = {
    "run ../copy.onnx -i ../x.npy -o y.zarr": {"zarr", "numcodecs"},
    "run ../copy.onnx -i ../x.npy -o y.zarr --tile 8x8": {"zarr", "numcodecs"},
    "run ../copy.onnx -i ../x.npy -o y.zarr --max-memory 2GiB": {"zarr", "numcodecs"},
    "run ../copy.onnx -i ../x.zarr -o y.npy": {"zarr", "numcodecs"},
    "run ../copy.onnx -i ../lzw.tif -o y.tif --tile 16x16": {"imagecodecs"},
    "run ../volume.onnx -i ../lzw-volume.tif -o y.npy": {"imagecodecs"},
    "run ../volume.onnx -i ../v.nii -o y.npy": {"nibabel"},
    "run ../volume.onnx -i ../v.nii -o y.nii --tile 4x4x4": {"nibabel"},
    "run ../volume.onnx -i ../v.npy -o y.nii": {"nibabel"},
    "compare ../pool.onnx --against torch": {"torch"},
    "compare ../pool.onnx --against openvino": {"openvino"},
    "export ../nets.py:segnet -o n.onnx --example image=1x3x8x8": {"torch", "onnxscript"},
    "demo": {"skimage"},
}
WITHOUT = {
    "run ../copy.onnx -i ../x.npy -o y.npy": OK,
    "run ../copy.onnx -i ../x.tif -o y.tif": OK,
    "run ../copy.onnx -i ../x.tif -o y.tif --tile 8x8": OK,
    "run ../copy.onnx -i ../deflate.tif -o y.npy --max-memory 2GiB": OK,
    "inspect ../pool.onnx": OK,
    "report ../pool.onnx -o page.html --iterations 0": OK,
    "compare ../pool.onnx --against onnxruntime": OK,
    "explain MaxPool size=7 kernel_shape=3": OK,
    "check ../pool.onnx": OK,
    "fix ../pool.onnx --dry-run": OK,
    "lower ../pool.onnx --for openvino -o n.onnx": OK,
    "upgrade ../pool.onnx --opset 22 -o n.onnx": OK,
    "canonicalise ../pool.onnx -o n.onnx": OK,
    "compile ../pool.onnx --shape none=1 -o n.onnx": UNFIT,
    "bench ../pool.onnx": OK,
    "warmup --type float99": UNFIT,
    "doctor": OK,
    "completion bash": OK,
}
SCHEDULER = "run ../copy.onnx -i ../x.npy -o y.zarr --tile 8x8 --scheduler tcp://127.0.0.1:1"
"""Only what is refused: with the packages it looks for a cluster."""

SESSION = "import unpool; session = unpool.InferenceSession('copy.onnx'); "
PYTHON = {
    "import unpool; unpool.InferenceSession": {"onnx", "onnxruntime"},
    "import unpool; unpool.SessionOptions": {"onnx", "onnxruntime"},
    "import unpool; unpool.plan": {"onnx", "onnxruntime"},
    "import unpool; unpool.lower": {"onnx", "onnxruntime"},
    "import unpool.tiles": {"onnx", "onnxruntime"},
    "import unpool.streams": {"onnx", "onnxruntime"},
    "import unpool.runtime.onnx_backend": {"onnx", "onnxruntime"},
    "import unpool.dask": {"dask"},
    "import unpool.torch": {"torch"},
    "import unpool.kernels.gpu": {"torch", "triton"},
    SESSION + "unpool.streams.run(session, {'x': 'x.npy'}, 'y.zarr', (8, 8))": {"zarr", "numcodecs"},
    SESSION + "unpool.streams.blend(session, {'x': 'x.npy'}, 'z.zarr', (8, 8))": {"zarr", "numcodecs"},
    "import unpool; unpool.images.open('lzw.tif')": {"imagecodecs"},
    "import unpool; unpool.images.open('v.nii', rank=5)": {"nibabel"},
    "import unpool; unpool.compare('pool.onnx', against=['torch'])": {"torch"},
}
MAP_TILES = SESSION + "unpool.map_tiles(session, {'x': 'x.npy'}, (8, 8), client=None, to='y.zarr')"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models and inputs."""
    here = tmp_path_factory.mktemp("inputs")
    copy = "net (float[1, 1, H, W] x) => (float[1, 1, H, W] y) { y = Relu (x) }"
    onnx.save(models.model(copy), here / "copy.onnx")
    onnx.save(models.model(copy.replace("H, W", "D, H, W")), here / "volume.onnx")
    pool = "net (float[1, 1, 4, 4] x) => (float[1, 1, 2, 2] y)"
    onnx.save(
        models.model(f"{pool} {{ y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) }}"), here / "pool.onnx"
    )
    x = np.random.default_rng(0).random((1, 1, 32, 32), np.float32)
    np.save(here / "x.npy", x)
    zarr.save_array(here / "x.zarr", x)
    tifffile.imwrite(here / "x.tif", x[0, 0], tile=(16, 16))
    tifffile.imwrite(here / "deflate.tif", x[0, 0], rowsperstrip=5, compression="zlib")
    tifffile.imwrite(here / "lzw.tif", x[0, 0], tile=(16, 16), compression="lzw")
    tifffile.imwrite(here / "lzw-volume.tif", np.stack([x[0, 0]] * 5), compression="lzw", photometric="minisblack")
    np.save(here / "v.npy", x[..., :8, :8][..., None].repeat(8, -1))
    nibabel.save(nibabel.Nifti1Image(np.load(here / "v.npy")[0, 0], np.eye(4)), here / "v.nii")
    (here / "nets.py").write_text("\n".join(line[4:] for line in NETS.splitlines()))
    return here


@pytest.fixture(scope="module")
def pool():
    """Processes in which nothing optional is loaded."""
    with processes() as found:
        yield found


def check_refused(outcome, module):
    """One line, the name of the package as pip has it, and a command that installs it; no file was written."""
    assert outcome.code == UNSUPPORTED, outcome.said
    (line,) = outcome.said.splitlines()
    names = {module: name for name, module in MODULES.items()}
    assert re.search(
        rf": .*\b{names.get(module, module)}\b.* (is|are) not installed\. In a clone of unpool, run: ", line
    )
    found = [extra for extra in EXTRAS if install_line(extra) in line]
    assert [extra for extra in found if module in EXTRAS[extra][1] or extra_of(module) is None] == found != []
    assert outcome.written == []


def test_rows_name_every_command_and_package():
    """No command is left out; and every package of the extras for users is one that a row needs, or that none does."""
    rows = {words.split()[0] for words in (*WITH_PACKAGES, *WITHOUT)}
    assert rows == {command.__name__ for command in COMMANDS}
    needed = set().union(*WITH_PACKAGES.values(), *PYTHON.values(), RUN)
    assert OPTIONAL - needed == {"distributed", "bokeh"}  # map_tiles needs the one, dashboards of Dask the other


SLOW = {"demo", "compare ../pool.onnx --against torch"}
"""They work in tests/cli/test_cli.py and tests/runtime/test_compare.py."""


@pytest.mark.sample(5)
@pytest.mark.parametrize("words", sorted({*WITH_PACKAGES, *WITHOUT} - SLOW))
def test_command_works_without_other_packages(words, folder, pool):
    """A command works without every package that it does not need, all of them missing at once."""
    hidden = OPTIONAL - RUN - WITH_PACKAGES.get(words, set())
    outcome = pool.submit(run_command, words, hidden, folder).result()
    assert outcome.code == WITHOUT.get(words, OK), outcome.said


ROWS = [(words, module) for words, needed in WITH_PACKAGES.items() for module in sorted(needed)]
ROWS += [(SCHEDULER, module) for module in ("dask", "distributed", "zarr", "numcodecs")]


@pytest.mark.sample(5)
@pytest.mark.parametrize(("words", "module"), ROWS)
def test_command_without_its_package(words, module, folder, pool):
    """Without a package that it needs, a command is refused with one line and exit code 4, and writes nothing."""
    outcome = pool.submit(run_command, words, {module}, folder).result()
    check_refused(outcome, module)
    assert outcome.said.startswith("error: ")


@pytest.mark.parametrize("module", sorted(RUN))
def test_commands_without_the_extra_run(module, folder, pool):
    """Without a package of `run` every command says so, and `doctor` answers."""
    commands = [f"{command.__name__} --help" for command in COMMANDS if command.__name__ != "doctor"]
    for outcome in pool.submit(run_commands, commands, {module}, folder).result():
        check_refused(outcome, module)
    assert pool.submit(run_command, "doctor --json", {module}, folder).result() == (OK, "", [])


PYTHON_ROWS = [(snippet, module) for snippet, needed in PYTHON.items() for module in sorted(needed)]
PYTHON_ROWS += [(MAP_TILES, module) for module in ("dask", "distributed", "zarr", "numcodecs")]


@pytest.mark.sample(5)
@pytest.mark.parametrize(("snippet", "module"), PYTHON_ROWS)
def test_function_without_its_package(snippet, module, folder, pool):
    """In Python the same line is a MissingExtraError, which names the module."""
    check_refused(pool.submit(run_python, snippet, {module}, folder).result(), module)
