"""Overlapping windows whose results are averaged, for models that cannot be tiled exactly.

The words and their meaning are those of MONAI's `sliding_window_inference`. Results near the ends of windows were made
without what is behind the end, so they depend on where windows begin; `tiles.run` has no such error.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unpool.runtime.tiles.bands import Blended
from unpool.runtime.tiles.windows import Array, Blending, windows_of

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession


def blend(  # noqa: PLR0913  the words of MONAI, by keyword only
    session: "InferenceSession",
    feed: Mapping[str, Any],
    roi_size: Sequence[int] | int,
    *,
    sw_batch_size: int = 1,
    overlap: float | Sequence[float] = 0.25,
    mode: str = "constant",
    sigma_scale: float | Sequence[float] = 0.125,
    padding_mode: str = "constant",
    cval: float = 0.0,
    outputs: Iterable[str] | None = None,
    layout: str = "NCHW",
    steps: Callable[[Sequence[Any]], Iterable[Any]] = iter,
) -> dict[str, Array]:
    """The outputs of a model, averaged over overlapping windows: for models of which no exact tiles can be had.

    Args:
        session: that runs the windows; it has to take batches of `sw_batch_size`, and images of `roi_size`.
        feed: every input by name; those of the highest rank are cut, at the same places, and have the same sizes.
        roi_size: elements of a window by spatial axis, or one number for all; 0 or less takes all of the image.
        sw_batch_size: windows in one run, at most.
        overlap: of windows that lie side by side, as a share of the window, from 0 to below 1.
        mode: "constant" gives equal weight to all results of a window, "gaussian" less to those near its ends.
        sigma_scale: standard deviation of the Gaussian weights, as a share of the window.
        padding_mode: what is around an image smaller than a window: "constant", "reflect", "replicate" or "circular".
        cval: the value around it for "constant".
        outputs: names of the outputs that are wanted; by default all.
        layout: "NCHW" where inputs have channels before the spatial axes, or "NHWC".
        steps: goes through the runs, and may show how far it is.

    Returns:
        the outputs by name; where the model scales an image, they are scaled alike.

    Raises:
        ShapeError: an output is no image, or its size is not a whole share or multiple of the window's at its places.
        UnpoolError: an argument is out of its range.

    Source: MONAI, monai.inferers.sliding_window_inference.

    >>> from onnx import parser
    >>> from unpool import InferenceSession
    >>> session = InferenceSession(parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     centred (float[1, 1, 4] x) => (float[1, 1, 4] y) {
    ...         m = ReduceMean <axes = [2]> (x)
    ...         y = Sub (x, m)
    ...     }'''))
    >>> blend(session, {"x": np.float32([[[0, 2, 4, 6, 8, 10]]])}, 4, overlap=0.5)["y"].tolist()
    [[[-3.0, -1.0, -1.0, 1.0, 1.0, 3.0]]]
    """
    names = [value.name for value in session.get_outputs()] if outputs is None else list(outputs)
    arrays = {name: np.asarray(array) for name, array in feed.items()}
    blending = Blending(roi_size, sw_batch_size, overlap, mode, sigma_scale, padding_mode, cval)
    windows = windows_of({name: array.shape for name, array in arrays.items()}, blending, layout)
    blended, outputs = Blended(windows, names), dict[str, Array]()
    for run in steps(list(windows.runs(range(len(windows))))):
        made = session.run(names, {**arrays, **windows.read(arrays, run)})
        for name, part in (blended.add(run, made) or {}).items():
            bands = blended.bands[name]
            if name not in outputs:
                outputs[name] = np.empty(bands.shape, part.dtype)
            outputs[name][bands.window(run.band)] = part
    return outputs
