"""Which inputs are cut into tiles, and along which of their axes."""

from collections.abc import Iterable, Mapping

from unpool.errors import ShapeError, UnpoolError, suggest_name
from unpool.runtime.tiles.walk import Axes, Shape

LAYOUTS = ("NCHW", "NHWC")


def image_inputs(shapes: Mapping[str, Shape], layout: str, names: Iterable[str] | None) -> dict[str, Axes]:
    """For every input that is cut, which spatial axis of the image each of its axes is.

    Args:
        shapes: of all inputs that are fed.
        layout: "NCHW" where channels come before the spatial axes, of which there may be one to three, or "NHWC".
        names: the inputs to cut. By default: all of the highest rank that have more than one element on a spatial axis.

    Raises:
        UnpoolError: no input is an image, or one that is named is none.
        ShapeError: an image has no elements.

    >>> image_inputs({"x": (1, 3, 64, 48), "time": (1,)}, "NCHW", None)
    {'x': (None, None, 0, 1)}
    """
    if layout not in LAYOUTS:
        raise UnpoolError(
            f"layout: expected one of {', '.join(LAYOUTS)}; got {layout!r}. {suggest_name(layout, LAYOUTS)}"
        )
    chosen = list(shapes) if names is None else list(names)
    for name in chosen:
        if name not in shapes:
            raise UnpoolError(f"tiles: expected inputs among {', '.join(shapes)}; got {name!r}. Choose one.")
    rank = max((len(shapes[name]) for name in chosen), default=0)
    fitting = [name for name in chosen if len(shapes[name]) == rank > 2 and max(_spatial(shapes[name], layout)) > 1]
    if not fitting or (names is not None and len(fitting) < len(chosen)):
        raise UnpoolError(
            "tiles: expected an input of batch, channels and one spatial axis or more, "
            f"got {', '.join(f'{name} of shape {list(shapes[name])}' for name in chosen) or 'none'}. Run it whole."
        )
    for name in fitting:
        if 0 in shapes[name]:
            raise ShapeError(f"tiles: input {name!r} of shape {list(shapes[name])} has no elements. Run it whole.")
    spatial = tuple(range(rank - 2))
    axes: Axes = (None, None, *spatial) if layout == "NCHW" else (None, *spatial, None)
    return dict.fromkeys(fitting, axes)


def _spatial(shape: Shape, layout: str) -> Shape:
    return shape[2:] if layout == "NCHW" else shape[1:-1]
