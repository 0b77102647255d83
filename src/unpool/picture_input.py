"""Pictures as the input of a model, with the pixels that `unpool run` feeds it.

model_input = PictureInput(session)
picture = unpool.images.read("photo.png", channels=model_input.channels)
scores = session.run(None, {model_input.name: model_input.array(picture)})[0]
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from unpool.cli.feed import to_input
from unpool.cli.metadata import Metadata
from unpool.cli.model import size_error, slots
from unpool.cli.options import Layout
from unpool.cli.run_config import RunConfig
from unpool.errors import ShapeError
from unpool.images.pixels import Picture

__all__ = ["PictureInput"]


class PictureInput:
    """The only input of a model that takes pictures, and the steps that the model's metadata name.

    Pixels are scaled to those of 8-bit pictures, then by the entries `unpool.input_scale`, `unpool.input_mean` and
    `unpool.input_std`, which `unpool export` writes; `unpool.input_white` counts as in `unpool run`.

    Attributes:
        name: of the input.
        channels: number of channels, or None where the model leaves it open.
        dtype: the type of its numbers.

    >>> import numpy as np, unpool
    >>> from importlib.resources import files
    >>> session = unpool.InferenceSession(str(files("unpool") / "data" / "coins.onnx"))
    >>> model_input = PictureInput(session)
    >>> picture = unpool.images.Picture(np.full((8, 8, 1), 65535, np.uint16), 65535)
    >>> x = model_input.array(picture)
    >>> model_input.channels, x.shape, x.max().item()
    (1, (1, 1, 8, 8), 255.0)
    """

    def __init__(self, session: Any, *, layout: str = "NCHW") -> None:
        """Read the metadata; UnpoolError if they are not what they should be, or the model has several inputs.

        Args:
            session: an InferenceSession, of unpool or of onnxruntime.
            layout: "NCHW", or "NHWC" where the channels of the input come last.
        """
        by_name = slots(session)
        if len(by_name) != 1:
            raise ShapeError(f"expected a model with one input, got {', '.join(by_name)}. Feed them by session.run.")
        ((self.name, self._slot),) = by_name.items()
        metadata = Metadata(session.get_modelmeta().custom_metadata_map, "the model")
        config = RunConfig(model=Path(), inputs=[], target="", layout=Layout(layout.lower()))
        self._session, self._layout, self._rule = session, config.layout, metadata.pixel_rule(config)
        self.channels, self.dtype = self._slot.channels(config.layout), self._slot.dtype

    def array(self, picture: Picture, where: str = "the picture") -> NDArray[Any]:
        """The input of a run on one picture, a batch of one; ShapeError if it does not fit the model."""
        picture = replace(picture, white_level=self._rule.white_of(picture.white_level))
        array = to_input(picture, self._slot, self._rule, where)
        self._slot.check(array, where)
        return array

    def size_error(self, array: NDArray[Any]) -> str | None:
        """The message about an input on which a run has failed, if another size is known, or found, to run.

        The session is one of unpool.
        """
        return size_error(self._session, {self.name: array}, self._layout)
