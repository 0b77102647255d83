"""The work of `unpool run --scheduler`: arrays in files go tile by tile through a Dask cluster into Zarr."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from unpool.cli.errors import UsageError
from unpool.cli.feed import read_one
from unpool.cli.inputs import InputFile, Item, input_name, split_name
from unpool.cli.metadata import Metadata
from unpool.cli.model import open_session, slots
from unpool.cli.progress import Outcome, ProgressDisplay, Result
from unpool.cli.render import specs_of
from unpool.cli.run_config import RunConfig
from unpool.cli.windows import ending_at_once
from unpool.errors import MissingFileError, UnpoolError
from unpool.extras import require
from unpool.images.checks import read_errors
from unpool.images.formats import WINDOW_NAMES
from unpool.images.npy import read_header
from unpool.runtime.streams.runner import Progress

TIMEOUT = "30s"


def run(config: RunConfig, progress: ProgressDisplay) -> Outcome:
    """Run the model on the cluster of the scheduler, into a Zarr array, a group of them, or a file."""
    require("--scheduler", "dask", "dask", "distributed", "zarr", "numcodecs")
    from distributed import Client

    from unpool.runtime.cluster.map_tiles import map_tiles

    _check(config)
    session = open_session(config.model, provider=config.provider, threads=config.threads, **config.semantics)
    feed, notes = _feed(config, session)
    begin = time.perf_counter()
    latest: Progress | None = None
    if not config.output.parent.is_dir():
        raise MissingFileError(f"{config.output.parent}: no such folder for the output. Create it first.")
    try:
        connection = Client(config.scheduler, timeout=TIMEOUT, set_as_default=False)
    except (OSError, ValueError) as error:
        fact = f"no Dask scheduler answers at this address ({error})"
        raise UnpoolError(f"--scheduler {config.scheduler}: {fact}. Start one with: dask scheduler") from error

    def on_progress(now: Progress) -> None:
        nonlocal latest
        latest = now
        progress.on_progress(now)

    arrays: dict[str, Any] = {}
    tile: Any = config.tiles
    with connection as client, ending_at_once(lambda: None, can_resume=True):
        for _ in progress.items([Item(config.output.stem, {})]):
            arrays = map_tiles(
                session,
                feed,
                tile,
                client=client,
                to=str(config.output.absolute()),
                outputs=config.output_names or None,
                layout=config.layout.upper(),
                **asdict(config.scores),
                threads=config.threads or 1,
                resume=config.resume,
                on_progress=on_progress,
            )
    seconds = time.perf_counter() - begin
    result = Result(config.inputs[0], config.output, specs_of(arrays), seconds, notes=notes, progress=latest)
    return Outcome([result], [])


def _check(config: RunConfig) -> None:
    """Refuse options that a run on a cluster does not have; the message names the option."""
    if config.is_stdout or config.is_folder or config.file_format.windows is None:
        formats = ", ".join(f".{suffix}" for suffix in WINDOW_NAMES)
        raise UsageError(f"-o {config.output}: a cluster writes one file of {formats}. Give such a name.")
    for option, is_set, advice in (
        ("--overlay", config.overlay, "Write the classes with --argmax"),
        ("--classes", config.classes is not None, "Masks have numbers: leave it out"),
        ("--palette", config.palette is not None, "Masks have numbers: leave it out"),
        ("--blend", config.blend is not None, "Its tiles are exact: leave it out"),
        ("--max-memory", config.max_memory is not None, "Workers have a --memory-limit of their own"),
        ("--keep-going", config.keep_going, "Leave it out"),
    ):
        if is_set:
            raise UsageError(f"{option}: is not for --scheduler. {advice}.")
    if not isinstance(config.tiles, tuple | int):
        raise UsageError("--scheduler: expected --tile with sizes, such as 1024, because workers share no memory.")
    config.check()


def _feed(config: RunConfig, session: Any) -> tuple[dict[str, Any], list[str]]:
    """Every input: Zarr as it is in storage, .npy mapped, other files read; and assumptions about their pixels."""
    inputs, feed, notes = slots(session), {}, list[str]()
    rule = Metadata(session.get_modelmeta().custom_metadata_map, str(config.model)).pixel_rule(config)
    for text in config.inputs:
        name, path = split_name(text, list(inputs))
        name = input_name(text, name, list(inputs))
        if name in feed:
            raise UsageError(f"-i {text}: there is another file for input {name!r}. Run them separately.")
        if not path.exists():
            raise MissingFileError(f"{path}: no such file or folder.")
        if path.suffix in (".zarr", ".npy"):
            feed[name] = open_array(path, config.level)
        else:
            feed[name], _, assumptions = read_one(InputFile(path), inputs[name], rule)
            notes += assumptions
        inputs[name].check(feed[name], str(path))
    if len(feed) < len(inputs):
        raise UnpoolError(f"-i: the model takes {', '.join(inputs)}, got {', '.join(feed)}. Add the others.")
    return feed, notes


def open_array(path: Path, level: int = 0) -> Any:
    """A .zarr or .npy file as an array; tiles of it are read. Raises as `unpool.images.open`."""
    if path.suffix == ".zarr":
        from unpool.images.zarr_store import ZarrReader, open_zarr_array

        return ZarrReader(path, open_zarr_array(path, level))
    with read_errors(str(path), "an array of numbers"):
        with path.open("rb") as stream:
            read_header(stream, path.stat().st_size, str(path))
        return np.load(path, mmap_mode="r", allow_pickle=False)
