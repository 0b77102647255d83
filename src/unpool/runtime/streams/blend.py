"""Runs a model over files in overlapping windows whose results are averaged; only a band of rows is held."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpool.errors import ShapeError
from unpool.files import lock
from unpool.images.axes import Slices
from unpool.images.sink import OutputSpec
from unpool.memory_limits import rss
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.streams.doing import Finished, do, paths_of, session_settings, targets_of
from unpool.runtime.streams.earlier import earlier_run
from unpool.runtime.streams.flow import flow
from unpool.runtime.streams.job import AUTO, Asked
from unpool.runtime.streams.journal import Settings
from unpool.runtime.streams.progress import Progress
from unpool.runtime.streams.result import SOFTMAX, Result, Scores, Whole, result_of
from unpool.runtime.streams.unfinished import require_apart, require_places, require_targets
from unpool.runtime.streams.work import (
    BESIDES,
    IN_HANDS,
    Made,
    Stage,
    identities,
    read_uncut,
    sources_of,
    spatial_header_of,
)
from unpool.runtime.tiles.bands import Bands, Blended
from unpool.runtime.tiles.fitting import too_small
from unpool.runtime.tiles.windows import Array, Blending, Run, Windows, windows_of

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession


def blend(  # noqa: PLR0913  public options, by keyword only
    session: "InferenceSession",
    feed: Mapping[str, Any],
    target: str | Path | Mapping[str, str | Path],
    roi_size: Sequence[int] | int,
    *,
    sw_batch_size: int = 1,
    overlap: float | Sequence[float] = 0.25,
    mode: str = "constant",
    sigma_scale: float | Sequence[float] = 0.125,
    padding_mode: str = "constant",
    cval: float = 0.0,
    output: str | None = None,
    argmax: bool = False,
    softmax: bool = False,
    threshold: float | None = None,
    max_memory: int | None = None,
    layout: str = "NCHW",
    resume: bool = False,
    told: Callable[[Progress], None] = lambda _: None,
) -> Finished:
    """Write outputs of a model into files, averaged over overlapping windows: the numbers of `unpool.tiles.blend`.

    Windows that begin at one place along the first axis are a band. Only the sums of one band are held; what no later
    window reaches is written. So memory grows with the width of an image, and not with its height.

    Args:
        session: that runs the windows; it has to take batches of `sw_batch_size`, and images of `roi_size`.
        feed: every input by name: a path, a source or an array, as `unpool.streams.run` takes them.
        target: where an output goes, or by name where each of several outputs goes, in one folder.
        roi_size: elements of a window by spatial axis, or one number for all; 0 or less takes all of the image.
        sw_batch_size: windows in one run, at most.
        overlap: of windows that lie side by side, as a share of the window, from 0 to below 1.
        mode: "constant" or "gaussian" weights.
        sigma_scale: standard deviation of the Gaussian weights, as a share of the window.
        padding_mode: what is around an image smaller than a window: "constant", "reflect", "replicate" or "circular".
        cval: the value around it for "constant".
        output: name of the output for a single target; by default the only one.
        argmax: write the number of the channel whose average is largest.
        softmax: write probabilities, by the softmax of averages over the channels.
        threshold: of an output with one channel, write 1 where its average is above this number and 0 elsewhere.
        max_memory: bytes that the process may have in all; by default as many as there are.
        layout: "NCHW" where inputs have channels before the spatial axes, or "NHWC".
        resume: go on with an earlier run, if there is one, from the last band that it wrote.
        told: is called whenever a band is on the disk, with how far the run is.

    Returns:
        what was written, and how far the run was at its end; its tiles are bands.

    Raises:
        ShapeError: an output is no image of floats, or a band takes more than `max_memory`.
        FileError: a file cannot be read or written.
        UnpoolError: a word is out of its range; there is an unfinished run, and `resume` is False; or `resume`, and
            the settings are not those of the earlier run.

    >>> import tempfile
    >>> import numpy as np
    >>> from onnx import parser
    >>> from unpool import InferenceSession
    >>> session = InferenceSession(parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     centred (float[1, 1, h, w] x) => (float[1, 1, h, w] y) {
    ...         m = GlobalAveragePool (x)
    ...         y = Sub (x, m)
    ...     }'''))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = blend(session, {"x": np.ones((1, 1, 9, 8), np.float32)}, Path(folder) / "y.npy", 4, overlap=0.5)
    ...     done.progress.tiles, float(np.load(Path(folder) / "y.npy").max())
    (4, 0.0)
    """
    targets = targets_of(session, target, output)
    require_apart(targets.values(), paths_of(session, feed))
    blending = Blending(roi_size, sw_batch_size, overlap, mode, sigma_scale, padding_mode, cval)
    asked = Asked(AUTO, max_memory, list(targets), Scores(argmax, softmax, threshold), layout)
    with lock(targets.values()):
        return blend_locked(session, feed, targets, blending, asked, resume=resume, told=told)


def blend_locked(
    session: "InferenceSession",
    feed: Mapping[str, Any],
    targets: Mapping[str, Path],
    blending: Blending,
    asked: Asked,
    *,
    resume: bool,
    told: Callable[[Progress], None],
) -> Finished:
    """See `blend`; the caller holds the locks of the outputs, and has seen that they are apart from the inputs."""
    require_targets(list(targets.values()))
    require_places(targets)
    earlier = earlier_run(targets, resume=resume)
    return do(_work(session, feed, blending, asked), targets, earlier, told)


@dataclass(frozen=True)
class Blend:
    """What is to be done; a part of it is a band.

    Attributes:
        reading: reads windows, and runs them.
        bands: by output, where they go.
        results: by output, what is written.
        settings: all that the results depend on, as it is written into a journal.
    """

    reading: "_Windows"
    bands: Mapping[str, Bands]
    results: Mapping[str, Result]
    settings: Settings

    @property
    def written(self) -> dict[str, OutputSpec]:
        """By output, what goes into its file."""
        return {name: result.written for name, result in self.results.items()}

    def __len__(self) -> int:
        return len(self.reading.windows)

    def windows(self, part: int) -> dict[str, Slices]:
        """Where a band goes in the files of the outputs."""
        return {name: result.window(self.bands[name].window(part)) for name, result in self.results.items()}

    def items(self, left: Collection[int]) -> Iterable[Run]:
        """The runs of windows that the bands need which are left."""
        return self.reading.windows.runs(left)

    def stages(self, options: onnxruntime.RunOptions) -> Sequence[Stage]:
        """Read windows, compute them, and add them up."""
        blended = Blended(self.reading.windows, list(self.results))

        def add(given: tuple[Run, Sequence[Array]]) -> Made | None:
            run, made = given
            parts = blended.add(run, made)
            return None if parts is None else (run.band, {name: self.results[name].of(parts[name]) for name in parts})

        return (*self.reading.stages(options), add)


@dataclass(frozen=True)
class _Windows:
    """The windows of a feed, and what runs them; inputs that are not cut are arrays."""

    session: "InferenceSession"
    names: Sequence[str]
    windows: Windows
    feed: Mapping[str, Any]

    def stages(self, options: onnxruntime.RunOptions) -> tuple[Stage, Stage]:
        """Read windows, and compute them."""

        def read(run: Run) -> tuple[Run, dict[str, Array]]:
            return run, self.windows.read(self.feed, run)

        def compute(given: tuple[Run, dict[str, Array]]) -> tuple[Run, Sequence[Array]]:
            run, read = given
            return run, self.session.run(list(self.names), {**self.feed, **read}, options)

        return read, compute

    def first(self) -> Sequence[Array]:
        """What the first run gives, which says what outputs are like."""
        options = onnxruntime.RunOptions()

        def end() -> None:
            options.terminate = True

        runs = [next(iter(self.windows.runs([0])))]
        ((_, made),) = flow(runs, self.stages(options), end)
        found: Sequence[Array] = made
        return found


def _work(session: "InferenceSession", feed: Mapping[str, Any], blending: Blending, asked: Asked) -> Blend:
    """What is to be done; the first windows are run, to know what outputs are like.

    Raises:
        ShapeError: an output is no image of floats, or a band takes too much memory.
    """
    names, layout = asked.outputs, asked.layout
    sources = sources_of(session, feed, layout)
    windows = windows_of({name: tuple(source.shape) for name, source in sources.items()}, blending, layout)
    reading = _Windows(session, names, windows, read_uncut(sources, windows.names))
    bands = {name: Bands(windows, name, array) for name, array in zip(names, reading.first(), strict=True)}
    if asked.max_memory is not None:
        _require_memory(reading, bands.values(), asked.scores, asked.max_memory)
    spatial_header = spatial_header_of(sources)
    results = {
        name: result_of(session, Whole(name, one.shape, one.piece, windows.axes), asked.scores, spatial_header)
        for name, one in bands.items()
    }
    settings = {
        **session_settings(session),
        "inputs": identities(sources),
        "blend": {name: _plain(word) for name, word in asdict(blending).items()},
        "outputs": list(names),
        **asdict(asked.scores),
        "layout": layout,
        "shapes": [list(result.written.shape) for result in results.values()],
    }
    return Blend(reading, bands, results, settings)


def _plain(word: Any) -> Any:
    """A word as JSON has it, which has no NaN."""
    if isinstance(word, float) and not isfinite(word):
        return str(word)
    return list(word) if isinstance(word, Sequence) and not isinstance(word, str) else word


def _require_memory(reading: _Windows, bands: Collection[Bands], scores: Scores, most: int) -> None:
    """Refuse bands that take more than the process may have; what a run takes, it has taken by now."""
    windows, batch = reading.windows, reading.windows.blending.sw_batch_size
    sources = [reading.feed[name] for name in windows.names]
    read = sum(prod(windows.roi) * source.dtype.itemsize * prod(source.shape) // prod(
        [windows.images, *windows.sizes]) for source in sources)  # fmt: skip
    made = sum(prod(one.part) * one.dtype.itemsize for one in bands)
    written = sum(IN_HANDS * one.bytes // 2 + (SOFTMAX * one.bytes if scores.softmax else 0) for one in bands)
    used, needed = rss(), sum(one.bytes for one in bands) + written + IN_HANDS * batch * (read + made) + BESIDES
    if used + needed > most:
        raise ShapeError(
            f"blend: {too_small('max_memory', most, used, needed)} A band of windows takes that over the width of the "
            "image. Windows that are shorter along the first axis take less."
        )
