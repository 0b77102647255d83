"""The estimate of memory that `unpool run --verbose` prints is close to the peak of the process."""

import re
import subprocess
import sys
from importlib.resources import files

import nibabel
import numpy as np
import onnx
import pytest
import tifffile
from PIL import Image

from tests.support import models

RUN = """
import re, sys
from pathlib import Path
from unpool.cli import main
try:
    main()
finally:
    print("peak", int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""
LIMIT = 700  # MiB

PICTURE = np.random.default_rng(0).integers(0, 256, (1900, 2300), np.uint8)
SAVERS = {
    "grey.png": lambda path: Image.fromarray(PICTURE).save(path, compress_level=1),
    "colour.png": lambda path: Image.fromarray(np.stack([PICTURE] * 3, -1)).save(path, compress_level=1),
    "strip.tif": lambda path: tifffile.imwrite(path, PICTURE),
}


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how much memory a process has had")


@pytest.mark.slow
@pytest.mark.parametrize("name", SAVERS)
def test_the_estimate_is_close_to_the_peak(name, tmp_path):
    """A new process keeps the limit, and its peak is within 15 % of the estimate."""
    SAVERS[name](tmp_path / name)
    model = files("unpool") / "data" / "coins.onnx"
    _require_close_estimate(LIMIT, tmp_path, str(model), "-i", name, "-o", "y.npy", "--argmax")


def test_the_estimate_for_a_volume_is_close_to_the_peak(tmp_path):
    """Class numbers are counted as they are written, one part of an image once, and three axes without copies."""
    onnx.save(models.unet3d(), tmp_path / "unet3d.onnx")
    scan = np.random.default_rng(0).integers(-1000, 1000, (160, 192, 176), np.int16)
    nibabel.save(nibabel.Nifti1Image(scan, np.eye(4)), tmp_path / "scan.nii")
    _require_close_estimate(400, tmp_path, "unet3d.onnx", "-i", "scan.nii", "-o", "y.nii", "--argmax")


def _require_close_estimate(limit, folder, *words):
    words = ["run", *words, "--max-memory", f"{limit}MiB", "--verbose"]
    done = subprocess.run([sys.executable, "-c", RUN, *words], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    peak = int(re.search(r"peak (\d+)$", done.stdout.strip())[1])
    estimate = int(re.search(r"estimate: (\d+) MiB", done.stderr)[1])
    assert peak <= limit
    assert abs(peak - estimate) <= 0.15 * peak, (peak, estimate)
