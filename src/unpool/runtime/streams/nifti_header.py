"""Headers of NIfTI files for results: where the volume is that the model saw, in its units, but none of its values.

    kept       the affines, both their codes, the sizes of voxels, the units, the kind of header
    left out   what describes the patient, and the values of the input

Source: the NIfTI-1 and NIfTI-2 headers, https://nifti.nimh.nih.gov.
"""

from typing import Any

import numpy as np

from unpool.errors import ShapeError

OF_VALUES = ("intent_code", "intent_p1", "intent_p2", "intent_p3", "intent_name", "cal_max", "cal_min")
TOLD = ("descrip", "aux_file")


def header_like(space: Any, shape: tuple[int, ...], dtype: "np.dtype[Any]", where: str) -> Any:
    """The header of a result.

    Args:
        space: the header of the volume that the model saw; None puts voxels of size 1 anywhere.
        shape: of the result: up to three axes of space, then channels if there are several.
        dtype: of the result.
        where: what an error message begins with.

    Raises:
        ShapeError: another number of voxels than the volume has that the model saw.
    """
    if space is None:
        import nibabel

        kind: Any = nibabel.Nifti1Header
        header = kind()
    else:
        _require_same_place(space, shape, where)
        header = space.copy()
        for name in (*OF_VALUES, *TOLD):
            header[name] = np.zeros_like(header[name])
    header.set_data_dtype(dtype)
    header.set_data_shape(shape)
    header.set_slope_inter(1, 0)
    header.set_data_offset(0)
    return header


def spatial_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The first three sizes; those that are missing are 1.

    >>> spatial_shape((5, 6))
    (5, 6, 1)
    """
    return (*shape, 1, 1, 1)[:3]


def _require_same_place(space: Any, shape: tuple[int, ...], where: str) -> None:
    voxels = tuple(space.get_data_shape())
    if spatial_shape(shape) != spatial_shape(voxels):
        rank = min(len(voxels), 3)
        raise ShapeError(
            f"{where}: .nii keeps the place of the input's {_text(voxels[:rank])} voxels, "
            f"the output has {_text(shape[:rank])}. Write .npy."
        )


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
