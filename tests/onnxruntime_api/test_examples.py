"""The scripts of examples/onnxruntime print the same with either module."""

import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "onnxruntime"
PRINTED = {
    "classifier": "image 0: dark\nimage 1: dark\nimage 2: bright\nimage 3: bright\nimage 4: wrong size\n",
    "binding_server": (
        "[0, 0, 0, 0, 0, 5, 0, 7, 0, 0, 0, 0, 0, 13, 0, 15]\n"
        "[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]\n"
        "[0, 0, 0, 0, 7, 0, 5, 0, 0, 0, 0, 0, 15, 0, 13, 0]\n"
    ),
    "async_batch": "".join(f"image {at}: {64 * at}\n" for at in range(6)) + "image 6: refused\n",
    "profiling": (
        "5 runs, started at some time\n"
        "MaxPool: 5 times, measured\nMaxUnpool: 5 times, measured\n"
        "Mul: 5 times, measured\nSigmoid: 5 times, measured\n"
    ),
    "dynamic_batch": (
        "free: ['batch', 1, 4, 4]\n"
        "1 images: [8]\n3 images: [8, 16, 24]\n0 images: []\n2 images: [8, 16]\n"
        "given: [2, 1, 4, 4] [2, 1, 4, 4] 16\n"
    ),
}
LONGEST = 60


@pytest.mark.parametrize("script", PRINTED)
def test_a_script_prints_the_same(ort, script, monkeypatch, capsys, here):
    """A script does with unpool what it does with onnxruntime."""
    monkeypatch.setenv("RUNTIME", ort.__name__)
    runpy.run_path(str(FOLDER / f"{script}.py"), run_name="__main__")

    assert capsys.readouterr().out == PRINTED[script]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_a_script_is_short(path):
    """Every script fits on a screen, and is run by the test above."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST
    assert path.stem in PRINTED
