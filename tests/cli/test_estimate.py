"""The estimate of memory that `unpool run --verbose` prints is close to the peak of the process."""

import re
import subprocess
import sys
from importlib.resources import files

import numpy as np
import pytest
import tifffile
from PIL import Image

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


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how much memory a process has had at most")
@pytest.mark.parametrize("name", SAVERS)
def test_the_estimate_is_close_to_the_peak(name, tmp_path):
    """A new process keeps the limit, and its peak is within 15 % of the estimate."""
    SAVERS[name](tmp_path / name)
    model = files("unpool") / "data" / "coins.onnx"
    words = ["run", str(model), "-i", name, "-o", "y.npy", "--argmax", "--max-memory", f"{LIMIT}MiB", "--verbose"]
    done = subprocess.run([sys.executable, "-c", RUN, *words], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    peak = int(re.search(r"peak (\d+)$", done.stdout.strip())[1])
    estimate = int(re.search(r"estimate: (\d+) MiB", done.stderr)[1])
    assert peak <= LIMIT
    assert abs(peak - estimate) <= 0.15 * peak, (peak, estimate)
