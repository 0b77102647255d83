"""NIfTI volumes and overlays of volumes: `unpool run` keeps where voxels are; nibabel is the truth."""

import gzip
import sys
from pathlib import Path

import nibabel
import numpy as np
import pytest
from onnx import TensorProto
from PIL import Image

from tests.support.command import copy_model, fails, invoke, save_model
from unpool.cli.errors import OK, UNFIT, UNSUPPORTED
from unpool.images.overlay import LEAST, OKABE_ITO, legend_for, planes_picture, view_of
from unpool.images.pixels import Picture

RNG = np.random.default_rng(3)
VOXELS = RNG.integers(-1000, 3000, (5, 7, 9), np.int16)
AFFINE = np.array([[0, -1.5, 0.2, 30], [0.8, 0, 0, -20], [0, 0.1, 4, 7], [0, 0, 0, 1]])


def nifti(path, voxels=VOXELS, kind=nibabel.Nifti1Image, slope=None, qform=None):
    image = kind(voxels, AFFINE)
    image.header.set_xyzt_units("mm", "sec")
    image.header["descrip"] = b"a patient's name"
    if slope is not None:
        image.header.set_slope_inter(*slope)
    if qform is not None:
        image.set_qform(qform, 1)
    nibabel.save(image, path)
    return path


def same(where="y.nii.gz", model_shape=(1, 1, "D", "H", "W"), source="a.nii.gz", kind=TensorProto.FLOAT):
    copy_model(Path("copy.onnx"), list(model_shape), kind)
    done = invoke("run", "copy.onnx", "-i", source, "-o", where)
    assert done.exit_code == OK, done.output
    assert done.stderr == ""
    return nibabel.load(where)


@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
@pytest.mark.parametrize("source", ["a.nii", "a.nii.gz"])
def test_a_volume_stays_where_it_is(here, source, kind):
    """What goes through a model of the identity has the voxels, both affines, codes, units and kind that it had."""
    nifti(source, kind=kind, qform=np.diag([2.0, 3, 4, 1]))
    before, after = nibabel.load(source), same(source=source)
    assert type(after) is kind
    assert after.get_data_dtype() == np.float32
    np.testing.assert_array_equal(after.get_fdata(), VOXELS)
    for name in ("get_qform", "get_sform"):
        np.testing.assert_array_equal(getattr(after, name)(), getattr(before, name)())
    assert [int(after.header[name]) for name in ("qform_code", "sform_code")] == [1, 2]
    assert after.header.get_xyzt_units() == ("mm", "sec")
    assert b"patient" not in after.header.binaryblock
    packed = Path("y.nii.gz").read_bytes()
    same(source=source)
    assert Path("y.nii.gz").read_bytes() == packed, "the time of writing is in the file"


def test_axes_are_those_of_the_file(here):
    """X, Y and Z of the file are D, H and W of the model, and slope and intercept are applied."""
    nifti("a.nii.gz", slope=(0.5, -10))
    model = copy_model(here / "copy.onnx", [1, 1, 5, 7, 9])
    assert invoke("run", model, "-i", "a.nii.gz", "-o", "y.npy").exit_code == OK
    np.testing.assert_array_equal(np.load("y.npy")[0, 0], nibabel.load("a.nii.gz").get_fdata().astype(np.float32))


def test_channels_of_volumes(here):
    """A fourth axis holds channels, axes of one element before it are left out, 8-bit colours are three channels."""
    nifti("a.nii.gz", np.stack([VOXELS, VOXELS[::-1]], axis=-1)[:, :, :, None])
    after = same(model_shape=(1, 2, "D", "H", "W")).get_fdata()
    np.testing.assert_array_equal(after[..., 1], VOXELS[::-1])
    colours = RNG.integers(0, 256, (5, 7, 9, 3), np.uint8)
    nifti("a.nii.gz", colours.view([("R", "u1"), ("G", "u1"), ("B", "u1")])[..., 0])
    np.testing.assert_array_equal(same(model_shape=(1, 3, "D", "H", "W")).get_fdata(), colours)


def test_a_slice_is_a_picture(here):
    """A file of one slice fills a flat model."""
    nifti("a.nii.gz", VOXELS[:, :, :1])
    np.testing.assert_array_equal(same(model_shape=(1, 1, "H", "W")).get_fdata()[..., None], VOXELS[:, :, :1])


def header(**fields):
    """A file whose header has other fields."""
    made = nibabel.Nifti1Image(VOXELS, AFFINE)
    content = bytearray(made.to_bytes())
    raw = nibabel.Nifti1Header(bytes(content[:348]))
    for name, value in fields.items():
        raw[name] = value
    content[:348] = raw.binaryblock
    return bytes(content)


HOSTILE = {
    "claims.nii": (header(dim=[3, 2000, 2000, 900, 1, 1, 1, 1]), "claims 7200000352 bytes, the file has"),
    "bomb.nii.gz": (
        gzip.compress(header(dim=[3, 2000, 2000, 90, 1, 1, 1, 1]) + bytes(2**20)),
        "claims 720000352 bytes, more than its",
    ),
    "huge.nii.gz": (gzip.compress(header(dim=[5, 32767, 32767, 32767, 32767, 1, 1, 1])), "bytes, more than its"),
    "short.nii.gz": (gzip.compress(header())[:-200], "could not read it"),
    "empty.nii.gz": (gzip.compress(header(dim=[3, 5, -7, 9, 1, 1, 1, 1])), "expected one pixel or more"),
    "far.nii.gz": (gzip.compress(header(vox_offset=1e9)), "begin at byte 1000000000, too far"),
    "pair.nii": (header(magic=b"ni1"), "got a header alone"),
    "other.nii": (b"not a volume at all" * 99, "got other bytes"),
    "text.nii.gz": (b"\x1f\x8bnot packed", "could not read it"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_volumes(here, name):
    """A header that claims too much, a bomb or a damaged file ends with one line, before memory is taken."""
    content, says = HOSTILE[name]
    Path(name).write_bytes(content)
    fails(UNFIT, "run", copy_model(here / "copy.onnx", [1, 1, "D", "H", "W"]), "-i", name, "-o", "y.npy", says=says)


def test_places_that_a_result_has_not(here):
    """An output with other sizes than the volume, and numbers that models do not take, are refused."""
    nifti("a.nii")
    nifti("c.nii", VOXELS.astype(np.complex64))
    text = "(float[1, 1, D, H, W] x) => (float[1, 1, d, h, w] y) { y = AveragePool <kernel_shape = [2, 2, 2]> (x) }"
    cut = save_model(here / "cut.onnx", text)
    for more in ((), ("--tile", "4x4x4")):
        says = "the input's 5x7x9 voxels, the output has 4x6x8"
        fails(UNFIT, "run", cut, "-i", "a.nii", "-o", "y.nii", *more, says=says)
    fails(UNSUPPORTED, "run", cut, "-i", "c.nii", "-o", "y.npy", says="got complex64")
    flat = copy_model(here / "flat.onnx", [1, 1, "H", "W"])
    fails(UNFIT, "run", flat, "-i", "a.nii", "-o", "y.npy", says="expected a single slice, got 5x7x9 voxels")


def test_missing_nibabel_is_said(here, monkeypatch):
    """Without nibabel one line names the extra, and the exit code is 4."""
    nifti("a.nii")
    monkeypatch.setitem(sys.modules, "nibabel", None)
    model = copy_model(here / "copy.onnx", [1, 1, "D", "H", "W"])
    fails(UNSUPPORTED, "run", model, "-i", "a.nii", "-o", "y.npy", says="run: pip install '.[formats]'")


@pytest.mark.parametrize("axes", ["RAS", "LPS", "PSR", "ILA"])
def test_volumes_are_looked_at_from_one_side(axes):
    """However a file stores its axes, its overlay is the same picture, with the patient's right on the left."""
    voxels = np.zeros((20, 30, 10), np.float32)
    voxels[16, 25, 8] = 1  # right, front, head
    image = nibabel.Nifti1Image(voxels, np.diag([2.0, 2.0, 6.0, 1.0]))
    wanted = nibabel.orientations.axcodes2ornt(axes)
    turned = image.as_reoriented(nibabel.orientations.ornt_transform(nibabel.io_orientation(image.affine), wanted))
    pixels = turned.get_fdata()[..., None]
    picture = Picture(pixels, None, spatial_header=turned.header)
    drawn = np.asarray(planes_picture(picture, pixels[..., 0].astype(np.uint8), legend_for(2, None), 1.0))
    orange = (drawn == OKABE_ITO[0]).all(axis=-1)
    times = LEAST // 30
    rows, columns = np.nonzero(orange[: 30 * times, : 20 * times])  # axial: 30 rows from front to back
    assert (rows.min(), rows.max() + 1) == (4 * times, 5 * times)
    assert (columns.min(), columns.max() + 1) == (3 * times, 4 * times)
    assert view_of(turned.header).lengths == (6.0, 2.0, 2.0)


def test_overlay_of_a_volume_as_planes(here):
    """--overlay of a volume is three planes where most of the classes are."""
    classes = np.zeros((1, 1, 12, 10, 8), np.uint8)
    classes[..., 7, 3, 2:] = classes[..., 5:, 3, 5] = 1
    nifti("a.nii", classes[0, 0])
    model = copy_model(here / "copy.onnx", [1, 1, "D", "H", "W"], TensorProto.UINT8)
    assert invoke("run", model, "-i", "a.nii", "-o", "o.png", "--overlay").exit_code == OK
    drawn = np.asarray(Image.open("o.png"))
    blended = np.rint((np.array(OKABE_ITO[0]) + 255) / 2).tolist()
    assert blended in drawn.reshape(-1, 3).tolist()
