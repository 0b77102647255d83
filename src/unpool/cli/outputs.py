"""Results -> the content of files."""

import logging
import zipfile
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from unpool.cli.exits import UsageError
from unpool.cli.model import sizes
from unpool.errors import ShapeError, UnsupportedError

if TYPE_CHECKING:
    from PIL import Image

PICTURE_FORMATS = ("png", "tif")
VOLUME_FORMATS = ("nii", "nii.gz")
ARRAY_FORMATS = ("npy", "npz")
WINDOW_FORMATS = ("npy", "tif", "zarr", "nii")

_log = logging.getLogger("unpool.cli")


def write_arrays(stream: BinaryIO, form: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write all arrays, whose names are those of the members (npz), or the only one (npy)."""
    if form == "npy":
        (array,) = arrays.values()
        np.save(stream, array, allow_pickle=False)
        return
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def write_picture(stream: BinaryIO, form: str, picture: "Image.Image") -> None:
    """Write a ready picture as .png or .tif."""
    if form == "png":
        picture.save(stream, format="PNG")
    else:
        import tifffile

        pixels = np.asarray(picture)
        tifffile.imwrite(stream, pixels, photometric="rgb" if pixels.ndim == 3 else "minisblack", compression="zlib")


def write_planes(stream: BinaryIO, form: str, pixels: NDArray[Any], where: str) -> None:
    """Write one image or volume given with channels last: (H, W, C) or (D, H, W, C), or without C.

    Raises:
        ShapeError: the shape is not one of these, or .png cannot hold it.
        UnsupportedError: the type is not one that the format holds; nothing is rescaled or clipped.
    """
    if form == "png":
        write_picture(stream, form, _png(pixels, where))
        return
    import tifffile

    is_colour = pixels.ndim >= 3 and pixels.shape[-1] in (3, 4) and pixels.dtype in (np.uint8, np.uint16)
    if is_colour:
        tifffile.imwrite(stream, pixels, photometric="rgb", compression="zlib")
        return
    pages = (
        np.moveaxis(pixels, -1, 0) if pixels.ndim >= 3 and pixels.shape[-1] != 1 else pixels.reshape(pixels.shape[:-1])
    )
    tifffile.imwrite(stream, np.ascontiguousarray(pages), photometric="minisblack", compression="zlib")


def _png(pixels: NDArray[Any], where: str) -> "Image.Image":
    from PIL import Image

    if pixels.ndim != 3 or pixels.shape[-1] not in (1, 3, 4):
        raise ShapeError(
            f"{where}: .png holds a flat picture of 1, 3 or 4 channels, got {sizes(pixels.shape)}. Write .tif or .npy."
        )
    plane = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    if plane.dtype == np.uint8 or (plane.dtype == np.uint16 and plane.ndim == 2):
        return Image.fromarray(np.ascontiguousarray(plane))
    raise UnsupportedError(
        f"{where}: .png holds uint8, or uint16 grey, got {plane.dtype}. Write .tif or .npy, or add --argmax."
    )


def check_kind(name: str, kind: str, form: str) -> None:
    """Refuse what no file of this format can hold, before the model runs.

    Args:
        name: of an output.
        kind: its type in the words of a session.
        form: of the file.
    """
    if kind.startswith("tensor("):
        if kind == "tensor(string)" and form not in ARRAY_FORMATS:
            raise UsageError(f"output {name!r} holds texts: .{form} is for numbers. Write .npy or .npz.")
    elif kind.startswith("seq(tensor("):
        if form != "npz":
            raise UsageError(f"output {name!r} is a sequence of tensors: one .{form} holds one. Write .npz.")
    else:
        raise UnsupportedError(
            f"output {name!r} is {kind}: files hold tensors and sequences of tensors. "
            "Choose another with --output-name, or use unpool.InferenceSession."
        )


def elements(outputs: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Outputs by name, an element of a sequence as `name.0`, `name.1`, ...

    >>> sorted(elements({"y": np.zeros(2), "s": [np.zeros(3), np.zeros(4)]}))
    ['s.0', 's.1', 'y']
    """
    found: dict[str, NDArray[Any]] = {}
    for name, value in outputs.items():
        if isinstance(value, list):
            digits = len(str(len(value) - 1))
            found |= {_unused(f"{name}.{at:0{digits}}", {*outputs, *found}): one for at, one in enumerate(value)}
        else:
            found[name] = value
    return found


def _unused(name: str, taken: Container[str]) -> str:
    while name in taken:
        name += "_"
    return name


def writable(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """The array in a type that files hold, value for value: texts of one length, small types of ONNX in wider ones.

    Raises:
        UnsupportedError: a text ends in NUL, which files of NumPy do not keep.
    """
    array = np.asarray(array)
    if array.dtype == object:
        if any(str(one).endswith("\0") for one in array.ravel()):
            raise UnsupportedError(
                f"{name}: a text ends in NUL, which .npy does not keep. Use unpool.InferenceSession."
            )
        return array.astype(np.str_)
    wide = _wider(array.dtype)
    if wide is None:
        return array
    _log.info("%s: %s is written as %s, value for value", name, array.dtype, wide)
    return array.astype(wide)


def _wider(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """NumPy's type for one of ml_dtypes', which files would not name; None for NumPy's own."""
    if dtype.type.__module__ != ml_dtypes.bfloat16.__module__:
        return None
    try:
        limits = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    except (TypeError, ValueError):
        return np.dtype(np.float32)
    return np.dtype(np.int8 if limits.min < 0 else np.uint8)
