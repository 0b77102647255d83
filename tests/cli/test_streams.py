"""The command over windows of files: every format, pyramids, and runs that are ended by Ctrl-C and by SIGKILL."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import nibabel
import numpy as np
import onnx
import pytest
import tifffile
import zarr

import unpool
from tests.support import models
from tests.support.command import invoke
from unpool import tiles
from unpool.files import lock

COMMAND = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from unpool.cli import main
main()
"""
RNG = np.random.default_rng(2)


@pytest.fixture
def here(here):
    """An empty folder with a model for images, as the current one."""
    onnx.save(models.halves(), "m.onnx")
    return here


def run(*words):
    done = invoke("run", "m.onnx", *words)
    assert done.exit_code == 0, done.output + done.stderr
    return done


def test_pixels_are_those_of_the_whole_image(here):
    """A tiled colour TIFF, made grey and scaled window by window, gives what it gives whole; other outputs too."""
    tifffile.imwrite("a.tif", RNG.integers(0, 256, (70, 90, 3), np.uint8), photometric="rgb", tile=(16, 32))
    options = ("-i", "a.tif", "--scale", "1/255", "--mean", "0.5")
    run(*options, "-o", "whole.npy")
    whole = np.load("whole.npy")
    done = run(*options, "-o", "y.zarr", "--tile", "16x20", "--json")
    assert json.loads(done.stdout)["results"][0]["tiles"]["tiles"] == 25
    np.testing.assert_array_equal(np.asarray(zarr.open_array("y.zarr", mode="r")), whole)
    run(*options, "-o", "y.tif", "--tile", "16x20")
    np.testing.assert_array_equal(tifffile.imread("y.tif"), whole[0, 0])
    run("-i", "y.zarr", "-o", "z.npy")
    assert np.load("z.npy").shape == (1, 1, 18, 23)


def test_a_level_of_a_pyramid_is_run(here):
    """`--level` takes a smaller copy of the image; a file without one is an error."""
    small = RNG.integers(0, 256, (40, 50), np.uint8)
    with tifffile.TiffWriter("a.tif") as file:
        file.write(small.repeat(2, 0).repeat(2, 1), tile=(32, 32), subifds=1)
        file.write(small, tile=(32, 32), subfiletype=1)
    tifffile.imwrite("small.tif", small)
    run("-i", "small.tif", "-o", "whole.npy")
    run("-i", "a.tif", "-o", "y.npy", "--level", "1")
    np.testing.assert_array_equal(np.load("y.npy"), np.load("whole.npy"))
    np.save("x.npy", np.zeros((1, 1, 8, 8), np.float32))
    assert "level from 0 to 1" in invoke("run", "m.onnx", "-i", "a.tif", "-o", "y.npy", "--level", "2").stderr


def test_a_volume_keeps_its_place_in_space(here):
    """A NIfTI file in, one out, with its affine, codes and units, as it is whole; a compressed one is read whole."""
    model = "same (float[1, 1, d, h, w] x) => (float[1, 1, d, h, w] y) { y = Abs (x) }"
    onnx.save(models.model(model), "m.onnx")
    volume = RNG.integers(-9, 9, (6, 7, 8), np.int16)
    for name, kind in (("v.nii.gz", nibabel.Nifti1Image), ("w.nii", nibabel.Nifti2Image)):
        image = kind(volume, np.diag([2.0, 3, 4, 1]))
        image.header.set_xyzt_units("micron", "msec")
        image.header.set_sform(np.diag([2.0, 3, 4, 1]), code="mni")
        image.header.set_qform(np.diag([2.0, 3, 4, 1]), code="talairach")
        image.header["descrip"], image.header["intent_code"] = b"a patient", 1002
        nibabel.save(image, name)
        done = run("-i", name, "-o", "y.nii", "--tile", "3x3x3")
        assert ("read whole" in done.stderr) == name.endswith("gz")
        run("-i", name, "-o", "whole.nii")
        made, whole = nibabel.load("y.nii"), nibabel.load("whole.nii")
        np.testing.assert_array_equal(np.asarray(made.dataobj), np.abs(volume))
        assert (type(made), made.header.get_xyzt_units()) == (kind, ("micron", "msec"))
        assert [int(made.header[code]) for code in ("sform_code", "qform_code", "intent_code")] == [4, 3, 0]
        assert made.header == whole.header


MANY = """many (float[1, 1, h, w] x, float[1, 1, h, w] z) => (float[1, 1, h, w] sum, float[1, 1, hh, ww] low) {
    sum = Add (x, z)
    low = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (sum)
}"""


def test_several_outputs_go_into_a_folder(here):
    """A file for each, tiled as whole, also of several images; `--output-name` chooses some of them."""
    model = models.model(MANY)
    model.graph.node[1].output[0] = model.graph.output[1].name = "low/pool"
    onnx.save(model, "m.onnx")
    Path("in").mkdir()
    for name in "ab":
        np.save(f"in/{name}.npy", RNG.random((1, 1, 30, 26), np.float32))
    np.save("z.npy", RNG.random((1, 1, 30, 26), np.float32))
    words = ("-i", "x=in", "-i", "z=z.npy", "-o")
    run(*words, "whole/")
    done = run(*words, "tiled/", "--tile", "8x12", "--json")
    names = ["a.low_pool.npy", "a.sum.npy", "b.low_pool.npy", "b.sum.npy"]
    assert sorted(Path(one["output"]).name for one in json.loads(done.stdout)["results"]) == names
    for name in names:
        assert (here / "tiled" / name).read_bytes() == (here / "whole" / name).read_bytes()
    said = run(*words, "tiled/", "--tile", "8x12", "--resume")
    assert said.stdout.count("was already complete, nothing was computed") == len(names)
    assert said.stderr == ""
    refused = invoke("run", "m.onnx", *words, "tiled/", "--tile", "8x8", "--resume").stderr
    assert "the earlier run used --tile 8x12. Use that, or leave out --resume" in refused
    run("-i", "x=in/a.npy", "-i", "z=z.npy", "-o", "one/", "--output-name", "sum", "--tile", "8x8")
    assert [path.name for path in (here / "one").glob("*.npy")] == ["a.npy"]


@pytest.mark.parametrize("more", [(), ("--tile", "8x8"), ("--tile", "16x16", "--blend", "constant")], ids=str)
def test_a_folder_is_written_by_one_command_at_a_time(here, more):
    """Where another process writes one of the files, the command says so before it writes the others."""
    Path("in").mkdir()
    Path("out").mkdir()
    for name in "ab":
        np.save(f"in/{name}.npy", RNG.random((1, 1, 32, 32), np.float32))
        Path(f"out/{name}.npy").write_bytes(b"earlier")
    with lock([Path("out/b.npy")]):
        done = invoke("run", "m.onnx", "-i", "in/", "-o", "out/", "--format", "npy", *more)
        assert done.exit_code == 3
        assert done.stderr.startswith(f"error: out/b.npy: process {os.getpid()} is writing it. Wait for it to end")
        assert sorted(path.name for path in Path("out").iterdir()) == [".b.npy.lock", "a.npy", "b.npy"]
        assert {path.read_bytes() for path in Path("out").glob("*.npy")} == {b"earlier"}
    run("-i", "in/", "-o", "out/", "--format", "npy", *more)
    assert sorted(path.name for path in Path("out").iterdir() if path.suffix != ".done") == ["a.npy", "b.npy"]


def test_a_folder_is_not_written_where_one_output_may_not_be_replaced(here):
    """A group among the arrays of the folder is seen before the first of them is replaced."""
    Path("in").mkdir()
    for name in "ab":
        np.save(f"in/{name}.npy", RNG.random((1, 1, 32, 32), np.float32))
    run("-i", "in/", "-o", "out/", "--format", "zarr")
    shutil.rmtree("out/b.zarr")
    zarr.create_group("out/b.zarr")
    before = Path("out/a.zarr/zarr.json").stat().st_mtime_ns
    done = invoke("run", "m.onnx", "-i", "in/", "-o", "out/", "--format", "zarr")
    assert (done.exit_code, done.stderr.startswith("error: out/b.zarr: is a folder, but not a single")) == (3, True)
    assert Path("out/a.zarr/zarr.json").stat().st_mtime_ns == before


def test_blended_tiles(here):
    """`--blend` runs what cannot be tiled exactly, and says what else it needs."""
    model = "centred (float[1, 1, h, w] x) => (float[1, 1, h, w] y) { m = GlobalAveragePool (x)  y = Sub (x, m) }"
    onnx.save(models.model(model), "m.onnx")
    np.save("x.npy", np.ones((1, 1, 30, 40), np.float32))
    words = ("-i", "x.npy", "-o", "y.npy", "--tile", "16x16")
    assert "--blend" in invoke("run", "m.onnx", *words).stderr
    run(*words, "--blend", "gaussian", "--overlap", "0.5")
    assert np.abs(np.load("y.npy")).max() < 1e-6
    blended = ("-i", "x.npy", "-o", "y.zarr", "--tile", "16x16", "--blend", "gaussian")
    done = run(*blended, "--max-memory", "64GiB", "--json")
    assert json.loads(done.stdout)["results"][0]["tiles"]["tiles"] == 9
    assert "already complete" in run(*blended, "--resume").stdout
    assert "max_memory 1MiB is too small" in invoke("run", "m.onnx", *blended, "--max-memory", "1MiB").stderr


SAME = "same (float[1, 1, h, w] x) => (float[1, 1, h, w] y) { y = MaxPool <kernel_shape = [1, 1]> (x) }"


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ((), ("--scale", "0.5"), "used no --scale. Leave it out"),
        (("--scale", "1/255"), ("--scale", "0.5"), "used --scale 1/255. Use that"),
        (("--mean", "1,2,3"), (), "used --mean 1,2,3. Use that"),
        (("--argmax",), ("--softmax",), "used --argmax. Use that"),
        ((), ("--level", "1"), "read another --level. Use that"),
    ],
    ids=str,
)
def test_resume_names_the_option_that_changed(here, first, second, says):
    """An option for the pixels is no other input; its value is given as it was typed."""
    onnx.save(models.model(SAME.replace("[1, 1, h", "[1, 3, h")), "m.onnx")
    with tifffile.TiffWriter("a.tif") as file:
        file.write(RNG.integers(0, 256, (40, 50, 3), np.uint8), photometric="rgb", tile=(16, 16), subifds=1)
        file.write(RNG.integers(0, 256, (20, 25, 3), np.uint8), photometric="rgb", tile=(16, 16), subfiletype=1)
    words = ("-i", "a.tif", "-o", "y.npy", "--tile", "16")
    run(*words, *first)
    assert (
        f"y.npy: the earlier run {says}, or leave out --resume."
        in invoke("run", "m.onnx", *words, *second, "--resume").stderr
    )


PATCH = """patch (float[1, 1, 8, 8, 8] x) => (float[1, 1, 8, 8, 8] y) {
    m = GlobalAveragePool (x)
    y = Sub (x, m)
}"""


@pytest.mark.parametrize("shape", [(12, 20, 9), (5, 20, 9), (3, 4, 5)], ids=str)
def test_a_model_of_a_fixed_patch_is_blended(here, shape):
    """A volume of any size, also below the patch, gives what `unpool.tiles.blend` gives, from and to any file."""
    onnx.save(models.model(PATCH), "m.onnx")
    volume = RNG.random((1, 1, *shape), np.float32)
    np.save("x.npy", volume)
    nibabel.save(nibabel.Nifti1Image(volume[0, 0], np.eye(4)), "v.nii")
    session, words = unpool.InferenceSession("m.onnx"), ("--blend", "gaussian", "--overlap", "0.5")
    expected = tiles.blend(session, {"x": volume}, 8, overlap=0.5, mode="gaussian")["y"]
    windows = np.prod([-(-max(0, size - 8) // 4) + 1 for size in shape])
    for source, target in (("x.npy", "y.npy"), ("v.nii", "w.npy"), ("x.npy", "y.npz")):
        done = run("-i", source, "-o", target, "--tile", "8", *words, "--json")
        assert json.loads(done.stdout)["results"][0]["tiles"]["tiles"] == windows
        found = np.load(target)
        np.testing.assert_allclose(found if target.endswith("npy") else found["y"], expected, atol=1e-6)
    done = invoke("run", "m.onnx", "-i", "x.npy", "-o", "z.npy", "--tile", "8x8x16", *words)
    assert "--tile 8x8x16: the model takes patches of 8x8x8. Write --tile 8x8x8." in done.stderr


def test_ended_by_ctrl_c_and_by_sigkill(here):
    """Ctrl-C exits with 130, SIGKILL without a word; each leaves what the next run goes on from, to the same bytes."""
    np.save("x.npy", RNG.random((1, 1, 120, 120), np.float32))
    words = ["run", "m.onnx", "-i", "x.npy", "-o", "y.npy", "--tile", "8x8"]
    for ending, code in ((signal.SIGINT, 130), (getattr(signal, "SIGKILL", signal.SIGTERM), -9)):
        before = lines(here)
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *words, "--resume"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        while lines(here) < before + 5 and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(ending)
        said = process.communicate()[1].decode()
        assert process.returncode == code, said
        assert ("--resume continues" in said) == (ending == signal.SIGINT)
        assert not (here / "y.npy").exists()
        assert (here / ".y.npy.lock").exists() == (ending != signal.SIGINT)
    refused = invoke(*words).stderr
    assert refused == "error: y.npy.part is left from an interrupted run. Add --resume, or delete it to start over.\n"
    done = json.loads(run(*words[2:], "--resume", "--json").stdout)["results"][0]["tiles"]
    assert done["resumed"] >= 8  # of ten lines one is no tile, and the last one may be torn
    run("-i", "x.npy", "-o", "whole.npy")
    assert (here / "y.npy").read_bytes() == (here / "whole.npy").read_bytes()


def lines(folder):
    journal = folder / "y.npy.part" / "journal"
    return journal.read_bytes().count(b"\n") if journal.exists() else 0
