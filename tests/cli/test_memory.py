"""`--max-memory` holds for every kind of output: the peak of a process, as the system counts it."""

import json
import re
import subprocess
import sys

import nibabel
import numpy as np
import onnx
import pytest
import tifffile
from PIL import Image

from tests.support import models

RUN = """
import json, re, sys
from pathlib import Path
from typer.testing import CliRunner
from unpool.cli.app import app

def run(*words):
    done = CliRunner().invoke(app, ["run", *words])
    peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
    return done.exit_code, done.stderr, peak
"""
"""The code of a command, what it says, and the peak of its process, in MiB."""

FIRST = f"{RUN}\nprint(json.dumps(run(*sys.argv[1:])))"
LIMITED = (
    RUN
    + """
def again(*words):
    Path("/proc/self/clear_refs").write_text("5")
    return run(*words)

for name, words in json.loads(sys.argv[1]).items():
    limits, code = [20], 3
    while code == 3 and len(limits) < 5:  # every call leaves some memory behind
        code, said, most = again(*words, "--max-memory", f"{limits[-1]}MiB")
        found = re.search(r"MiB is too small: this run needs at least about ([0-9]+) MiB", said)
        limits += [int(found[1])] if found else []
    print(json.dumps([name, code, limits, most, said]))
print(json.dumps(["whole", *again(*words)]))
"""
)
"""By kind of output: the code of a run with the least memory that a refusal names, the limits, and the peak, in MiB."""

NET = "net (float[1, 3, h, w] x) => (float[1, 4, h, w] y) { y = Conv <pads = [1, 1, 1, 1]> (x, w) }"
ROUND_TRIP = """trip (float[1, 3, h, w] x) => (float[1, 4, h, w] y) {
    c = Conv <pads = [1, 1, 1, 1]> (x, w)
    p, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (c)
    s = Shape (c)
    y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (p, i, s)
}"""
TWO = """two (float[1, 3, h, w] x) => (float[1, 3, h, w] low, float[1, 3, h, w] high)
    { low = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x)  high = Neg (x) }"""
VOLUME = "vol (float[1, 1, d, h, w] x) => (float[1, 2, d, h, w] y) { y = Conv <pads = [1, 1, 1, 1, 1, 1]> (x, w) }"
BYTES = "bytes (uint8[1, 3, h, w] x) => (uint8[1, 3, h, w] y) { y = Identity (x) }"
KINDS = {
    "archive": ("two.onnx", "-i", "a.png", "-o", "y.npz"),
    "picture": ("bytes.onnx", "-i", "a.png", "-o", "y.png"),
    "volume": ("vol.onnx", "-i", "v.nii.gz", "-o", "y.nii.gz", "--argmax"),
    "planes": ("vol.onnx", "-i", "v.nii.gz", "-o", "planes.png", "--overlay"),
    "standard output": ("net.onnx", "-i", "a.jpg", "-o", "-", "--argmax"),
    "overlay": ("net.onnx", "-i", "a.png", "-o", "o.tif", "--overlay"),
    "jpeg": ("net.onnx", "-i", "a.jpg", "-o", "o.jpg", "--overlay"),
    "two masks": ("net.onnx", "-i", "a.jpg", "-i", "b.jpg", "-o", "masks/", "--argmax"),
    "probabilities": ("net.onnx", "-i", "a.png", "-o", "p.npy", "--softmax"),
    "pages": ("pages.onnx", "-i", "pages.tif", "-o", "p.tif", "--overlay", "--pages", "batch"),
    "mask": ("net.onnx", "-i", "a.jpg", "-i", "small.png", "-o", "out/", "--argmax"),
}


@pytest.fixture
def here(here):
    """A folder with models and with images that take several times the memory of a tile, as the current one."""
    flat, deep = models.random(4, 3, 3, 3), models.random(2, 1, 3, 3, 3)
    onnx.save(models.model(NET, w=flat), "net.onnx")
    onnx.save(models.model(NET.replace("float[1", "float[n"), w=flat), "pages.onnx")
    onnx.save(models.model(VOLUME, w=deep), "vol.onnx")
    for name, text in (("two.onnx", TWO), ("bytes.onnx", BYTES)):
        onnx.save(models.model(text), name)
    pixels = np.random.default_rng(1).integers(0, 256, (40, 50, 3), np.uint8)
    Image.fromarray(pixels).save("small.png")
    large = Image.fromarray(pixels).resize((2100, 1700), Image.Resampling.NEAREST)
    large.save("a.jpg")
    large.save("b.jpg")
    large.save("a.png")
    tifffile.imwrite("pages.tif", np.stack([np.asarray(large)[:900]] * 4), photometric="rgb", compression="lzw")
    voxels = np.zeros((140, 150, 130), np.int16)
    voxels[40:90, 50:100, 60:] = 200
    nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), "v.nii.gz")
    return here


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how much memory a process has had at most")
def test_the_limit_holds_for_every_kind_of_output(here):
    """A run that is refused names the least that it needs; with that it runs, and keeps it; untiled it takes more."""
    code = [sys.executable, "-c", LIMITED, json.dumps(KINDS)]
    done = subprocess.run(code, capture_output=True, text=True, check=True)
    *limited, (_, whole_code, _, whole_peak) = map(json.loads, done.stdout.splitlines())
    assert [name for name, *_ in limited] == list(KINDS)
    for name, exit_code, limits, most, said in limited:
        assert (name, exit_code) == (name, 0), said
        assert len(limits) > 1, name
        assert most <= limits[-1], name
    assert whole_code == 0
    assert whole_peak > limited[-1][2][-1]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how much memory a process has had at most")
def test_what_is_loaded_for_a_run_counts(here):
    """The first command of a process keeps the limit that its refusal names, though it loads kernels and zarr."""
    onnx.save(models.model(ROUND_TRIP, w=models.random(4, 3, 3, 3)), "trip.onnx")
    words = ["trip.onnx", "-i", "a.jpg", "-o", "y.zarr", "--max-memory"]
    limit, code = 20, 3
    for _ in range(4):
        command = [sys.executable, "-c", FIRST, *words, f"{limit}MiB"]
        code, said, peak = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        found = re.search(r"MiB is too small: this run needs at least about ([0-9]+) MiB", said)
        if not found:
            break
        limit = int(found[1])
    assert (code, said) == (0, "")
    assert peak <= limit
