"""The session of a model, and its inputs as slots to fill."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from unpool.cli.options import Provider
from unpool.display import format_shape
from unpool.errors import MissingExtraError, ShapeError, UnsupportedError
from unpool.extras import missing_extra
from unpool.runtime.graph.shapes import numpy_type
from unpool.runtime.requirements import onnxruntime

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
AXES = {"nchw": {2: "N, C, H, W", 3: "N, C, D, H, W"}, "nhwc": {2: "N, H, W, C", 3: "N, D, H, W, C"}}


@dataclass(frozen=True)
class SessionOptions:
    """Options of a session, named as for `unpool.InferenceSession`; `provider` is one of ours.

    `is_lean`: onnxruntime shall not take memory for a shape once more when the shape comes again, to have it in one
    partition.
    """

    compat: str = "spec"
    index_space: str = "auto"
    exact: bool = False
    threads: int | None = None
    provider: str = Provider.ONNXRUNTIME
    is_lean: bool = False

    @property
    def semantics(self) -> dict[str, Any]:
        """The keywords that functions of the library and sessions share."""
        return {"compat": str(self.compat), "index_space": str(self.index_space), "exact": self.exact}


@dataclass(frozen=True)
class Slot:
    """One input of a model: name, NumPy type, shape with None for free sizes; rank None is unknown."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...] | None

    def check(self, array: NDArray[Any], where: str) -> None:
        """Raise ShapeError or UnpoolError unless the array has this type and fits this shape."""
        if array.dtype != self.dtype:
            raise ShapeError(f"{where}: input {self.name!r} takes {self.dtype}, got {array.dtype}. Convert it first.")
        self.check_shape(array.shape, where)

    def check_shape(self, shape: tuple[int, ...], where: str) -> None:
        """Raise ShapeError unless an array of this shape fits."""
        if self.shape is None:
            return
        if self.batch and shape and not self.fits(shape) and self.fits((self.batch, *shape[1:])):
            raise ShapeError(
                f"{where}: input {self.name!r} takes a batch of {self.batch}, got {shape[0]}. Split it, or export the "
                "model with an open batch."
            )
        if not self.fits(shape):
            raise ShapeError(
                f"{where}: input {self.name!r} takes {format_shape(self.shape)}, got {format_shape(shape)}. "
                "Resize or cut it first: nothing is resized here."
            )

    @property
    def batch(self) -> int | None:
        """The size of the first axis, or None where it is open."""
        return self.shape[0] if self.shape else None

    def fits(self, shape: tuple[int, ...]) -> bool:
        """True if the input takes this shape."""
        if self.shape is None:
            return True
        is_open = (size is None or size == have for size, have in zip(self.shape, shape, strict=False))
        return len(self.shape) == len(shape) and all(is_open)

    def spatial_rank(self, layout: str) -> int:
        """2 for pictures, 3 for volumes; ShapeError when no image fits this input."""
        if self.shape is None:
            return 2
        rank = len(self.shape) - 2
        if rank not in AXES[layout]:
            raise ShapeError(
                f"input {self.name!r}: images fill ({AXES[layout][2]}) or ({AXES[layout][3]}), "
                f"this input is {format_shape(self.shape)}. Give a .npy file."
            )
        return rank

    def channels(self, layout: str) -> int | None:
        """Number of channels, or None when the model leaves it open."""
        if self.shape is None:
            return None
        return self.shape[1 if layout == "nchw" else -1]


def open_session(path: Path, options: SessionOptions) -> "InferenceSession":
    """The session of the model file.

    Raises:
        MissingExtraError: OpenVINO or CUDA is asked for and not installed.
    """
    from unpool.runtime.backends.openvino_device import is_installed
    from unpool.runtime.backends.ort_options import CUDA, OPENVINO
    from unpool.runtime.session.session import InferenceSession

    plain = onnxruntime.SessionOptions()
    plain.enable_mem_pattern = False
    if options.provider == Provider.OPENVINO and not is_installed():
        raise missing_extra("--provider openvino", "openvino", ["openvino"])
    if options.provider == Provider.CUDA and CUDA not in onnxruntime.get_available_providers():
        raise MissingExtraError(
            "--provider cuda: needs onnxruntime-gpu in the place of onnxruntime. "
            "Run: pip uninstall onnxruntime && pip install onnxruntime-gpu"
        )
    names = {Provider.OPENVINO: [OPENVINO], Provider.CUDA: [CUDA]}

    return InferenceSession(
        str(path),
        plain if options.is_lean else None,
        **options.semantics,
        threads=options.threads,
        providers=names.get(Provider(options.provider)),
    )


def slots(session: "InferenceSession") -> dict[str, Slot]:
    """The inputs of the model by name, in its order."""
    found = {}
    for one in session.get_inputs():
        shape = tuple(size if isinstance(size, int) else None for size in one.shape) if one.shape else None
        dtype = numpy_type(one.type)
        if dtype is None:
            raise UnsupportedError(
                f"input {one.name!r}: expected a tensor of numbers, got {one.type}. Use unpool.InferenceSession."
            )
        found[one.name] = Slot(one.name, dtype, shape)
    return found
