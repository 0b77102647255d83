"""Runs a model over files, in exact tiles or in blended windows; an interrupted run can be resumed."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpool.errors import UnpoolError
from unpool.extras import require
from unpool.files import lock
from unpool.runtime.streams.checkpoint import find_checkpoint, partial_folder, require_same_settings
from unpool.runtime.streams.jobs import AUTO, ExactTilePlan, TileRequest, blend_job, input_paths
from unpool.runtime.streams.output_transform import ScoreFormat
from unpool.runtime.streams.partial_output import require_apart, require_distinct, require_replaceable
from unpool.runtime.streams.runner import ProgressCallback, RunResult, run_job
from unpool.runtime.tiles.blending import BlendOptions

if TYPE_CHECKING:
    from unpool.onnxruntime.session import InferenceSession


def run(  # noqa: PLR0913  public options, by keyword only
    session: "InferenceSession",
    feed: Mapping[str, Any],
    target: str | Path | Mapping[str, str | Path],
    tile: Sequence[int] | int | str = AUTO,
    *,
    output: str | None = None,
    argmax: bool = False,
    softmax: bool = False,
    threshold: float | None = None,
    max_memory: int | None = None,
    layout: str = "NCHW",
    resume: bool = False,
    on_progress: ProgressCallback = lambda _: None,
) -> RunResult:
    """Write outputs of a model to files, tile by tile: the results of `session.run` for images larger than memory.

    Until the last tile is written, `TARGET.part` next to the file holds its data, and a journal of the finished tiles.
    After an interruption of any kind, a run with `resume=True` and the same settings continues from there, and writes
    the same bytes as a single run. It reads the data of the earlier run again and compares them with the journal.
    Next to a complete output, `.TARGET.done` holds its settings; with `resume=True`, nothing is computed again then.

    Args:
        session: that runs the tiles.
        feed: every input by name: a path (for `unpool.images.open`), what that returns, an array, or anything that
            has a shape and a type and gives arrays for `feed[name][slices]`. An object with a method `fingerprint` is
            not read to see whether it has changed.
        target: .zarr (version 3), .npy, .tif (BigTIFF in tiles, not compressed) or .nii; for several outputs, a
            file by name for each, in one folder.
        tile: elements of the first input for which one tile gives the results, by spatial axis, or one number for all,
            rounded down to a multiple of the total stride; "auto" takes the largest that fits into memory.
        output: name of the output for a single target; by default the only one.
        argmax: write the number of the channel with the largest value, uint8 up to 256 channels, else uint16.
        softmax: write probabilities, by the softmax over the channels, in the type of the output; it has floats.
        threshold: of an output with one channel, write 1 where it is above this number and 0 elsewhere, as uint8.
        max_memory: limit of the memory of the process in bytes, for "auto"; by default the memory in use, and half of
            what is free.
        layout: "NCHW" where inputs have channels before the spatial axes, or "NHWC".
        resume: continue an earlier run, if there is one.
        on_progress: called with the progress whenever a tile is on disk.

    Returns:
        the files, and the progress at the end.

    Raises:
        UnsupportedError: a node does not treat every position of the image alike; the message names it. Or the format
            of a file does not hold such an array.
        ShapeError: even the smallest tile takes too much memory.
        FileError: a file cannot be read or written.
        UnpoolError: there is an interrupted run, and `resume` is False; or `resume`, and the settings are not those of
            the earlier run.

    >>> import tempfile
    >>> import numpy as np
    >>> from onnx import parser
    >>> from unpool import InferenceSession
    >>> session = InferenceSession(parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     shrink (float[1, 1, h, w] x) => (float[1, 1, hh, hw] y) {
    ...         y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
    ...     }'''))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = run(session, {"x": np.ones((1, 1, 8, 6), np.float32)}, Path(folder) / "y.npy", (4, 4))
    ...     done.progress.tiles, np.load(Path(folder) / "y.npy").shape
    (4, (1, 1, 4, 3))
    """
    targets = output_paths(session, target, output)
    request = TileRequest(tile, max_memory, list(targets), ScoreFormat(argmax, softmax, threshold), layout)
    require_apart(targets.values(), input_paths(session, feed))
    with lock(targets.values()):
        return run_locked(session, feed, targets, request, resume=resume, on_progress=on_progress)


def blend(  # noqa: D417, PLR0913  public options, by keyword only; the text says where most of them are described
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
    on_progress: ProgressCallback = lambda _: None,
) -> RunResult:
    """Write outputs of a model to files, averaged over overlapping windows: the results of `unpool.tiles.blend`.

    Windows with the same start along the first axis form a band. Memory holds the sums of one band, and rows that no
    later window reaches are written: it grows with the width of an image, and not with its height.

    The arguments `feed`, `target`, `output` and `layout`, and `argmax`, `softmax` and `threshold` of the averages, are
    those of `run`. Those from `roi_size` to `cval` are those of `unpool.tiles.blend`.

    Args:
        session: that runs the windows; it has to take batches of `sw_batch_size`, and images of `roi_size`.
        max_memory: limit of the memory of the process in bytes; by default there is none.
        resume: continue an earlier run, if there is one, after its last band.
        on_progress: called with the progress whenever a band is on disk.

    Returns:
        the files, and the progress at the end; its tiles are windows.

    Raises:
        ShapeError: an output is no image of floats, or a band takes more than `max_memory`.
        FileError: a file cannot be read or written.
        UnpoolError: an argument is out of its range; there is an interrupted run, and `resume` is False; or `resume`,
            and the settings are not those of the earlier run.

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
    (12, 0.0)
    """
    targets = output_paths(session, target, output)
    blending = BlendOptions(roi_size, sw_batch_size, overlap, mode, sigma_scale, padding_mode, cval)
    scores = ScoreFormat(argmax, softmax, threshold)
    request = TileRequest(AUTO, max_memory, list(targets), scores, layout, blending)
    require_apart(targets.values(), input_paths(session, feed))
    with lock(targets.values()):
        return run_locked(session, feed, targets, request, resume=resume, on_progress=on_progress)


def run_locked(
    session: "InferenceSession",
    feed: Mapping[str, Any],
    targets: Mapping[str, Path],
    request: TileRequest,
    *,
    resume: bool,
    on_progress: ProgressCallback,
) -> RunResult:
    """`run` or `blend`, for a caller that holds the locks of the outputs and has checked that they are not inputs."""
    require_distinct(list(targets.values()))
    require_replaceable(targets)
    checkpoint = find_checkpoint(targets, resume=resume)
    if request.blending is not None:
        return run_job(blend_job(session, feed, request, request.blending), targets, checkpoint, on_progress)
    if request.max_memory is not None:
        for target in targets.values():
            if target.suffix == ".zarr":  # the memory of its packages counts as used when tiles are chosen
                require(str(target), "formats", "zarr", "numcodecs")
                import_module("zarr")
    plan = ExactTilePlan(session, feed, request)
    if request.max_memory is not None:
        plan.load_kernels(request.max_memory)
    job = plan.job(None if checkpoint is None else checkpoint.settings)
    if checkpoint is not None and not checkpoint.is_complete:
        folder = partial_folder(targets)
        require_same_settings(checkpoint, job.settings, next(iter(targets.values())), folder)
        plan.require_memory(job.settings["cell"], folder)
    return run_job(job, targets, checkpoint, on_progress)


def output_paths(
    session: "InferenceSession", target: str | Path | Mapping[str, str | Path], output: str | None
) -> dict[str, Path]:
    """By output, its file: one for the output of a name, by default the only one, or files by output."""
    names = [value.name for value in session.get_outputs()]
    if isinstance(target, Mapping):
        targets = {name: Path(path) for name, path in target.items()}
        if output is not None or not targets or not set(targets) <= set(names):
            text = f"files for outputs out of {', '.join(names)}, and no `output` in addition"
            raise UnpoolError(f"target: expected {text}; got {', '.join(targets) or 'none'}. Name its outputs.")
    elif output is None and len(names) > 1:
        raise UnpoolError(f"output: expected one of {', '.join(names)}, got none. Name one, or give a file for each.")
    else:
        targets = {output or names[0]: Path(target)}
    require_distinct(list(targets.values()))
    return targets
