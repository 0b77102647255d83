"""The work of `unpool run --scheduler`: arrays in files go tile by tile through a Dask cluster into Zarr."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from unpool.cli.errors import UsageError
from unpool.cli.feed import read_feed
from unpool.cli.inputs import InputFile, Item, split_name
from unpool.cli.model import Slot, open_session, slots
from unpool.cli.run_config import RunConfig
from unpool.cli.summary import Outcome, Result
from unpool.errors import MissingFileError, UnpoolError
from unpool.extras import require
from unpool.images.checks import read_errors
from unpool.images.npy import read_header

PATIENCE = "30s"
"""Timeout of the connection to a scheduler."""


def run(config: RunConfig, scheduler: str) -> Outcome:
    """Run the model on the inputs, and write one Zarr array, or a group of them where there are several outputs.

    Args:
        config: the command line.
        scheduler: address of the cluster, such as tcp://host:8786.

    Returns:
        one result.
    """
    tile = _tile(config)
    session = open_session(config.model, config.session)
    feed = _feed(config, slots(session))
    begin = time.perf_counter()
    if not config.output.path.parent.is_dir():
        raise MissingFileError(f"{config.output.path.parent}: no such folder for the output. Make it first.")
    with _client(scheduler) as client:
        made = session.map_tiles(
            feed,
            tile,
            client=client,
            to=str(config.output.path.absolute()),
            outputs=config.wanted or None,
            layout=config.rule.layout.upper(),
            threads=config.session.threads or 1,
        )
    arrays = {name: (array.shape, str(array.dtype)) for name, array in made.items()}
    return Outcome([Result(config.inputs[0], config.output.path, arrays, time.perf_counter() - begin)], [])


def _tile(config: RunConfig) -> tuple[int, ...]:
    """The size of a tile, once the options are known to go together."""
    require("--scheduler", "dask", "dask", "distributed", "zarr", "numcodecs")
    if not isinstance(config.tile, tuple):
        raise UsageError("--scheduler: expected --tile with sizes such as 1024x1024, because workers share no memory.")
    if config.output.path.suffix != ".zarr" or config.makes_classes or config.softmax:
        raise UsageError(f"--scheduler: expected -o NAME.zarr for the outputs as they are, got {config.output.path}.")
    return config.tile


def _feed(config: RunConfig, wanted: Mapping[str, Slot]) -> dict[str, Any]:
    """Every input: Zarr as it is in storage, .npy mapped, other files read."""
    found: dict[str, Any] = {}
    for text in config.inputs:
        name, path = split_name(text, list(wanted))
        if name is None and len(wanted) != 1:
            raise UsageError(
                f"-i {text}: the model has inputs {', '.join(wanted)}. Name one: -i {next(iter(wanted))}={path}"
            )
        name = name or next(iter(wanted))
        if name in found:
            raise UsageError(f"-i {text}: there is another file for input {name!r}. Run them separately.")
        found[name] = _array(path, name, config, wanted)
        wanted[name].check(found[name], str(path))
    if len(found) < len(wanted):
        raise UnpoolError(f"-i: the model takes {', '.join(wanted)}, got {', '.join(found)}. Add the others.")
    return found


def _array(path: Path, name: str, config: RunConfig, wanted: Mapping[str, Slot]) -> Any:
    if not path.exists():
        raise MissingFileError(f"{path}: no such file or folder.")
    if path.suffix in (".zarr", ".npy"):
        return open_array(path, config.level)
    return read_feed(Item(path.stem, {name: InputFile(path)}), wanted, config.rule).arrays[name]


def open_array(path: Path, level: int = 0) -> Any:
    """A .zarr or .npy file as an array; tiles of it are read.

    Raises:
        FileError, UnsupportedError, ShapeError: as `unpool.images.open`.
    """
    if path.suffix == ".zarr":
        from unpool.images.zarr_store import ZarrReader, open_zarr_array

        return ZarrReader(path, open_zarr_array(path, level))
    with read_errors(str(path), "an array of numbers"):
        with path.open("rb") as stream:
            read_header(stream, path.stat().st_size, str(path))
        return np.load(path, mmap_mode="r", allow_pickle=False)


def _client(scheduler: str) -> Any:
    from distributed import Client

    try:
        return Client(scheduler, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise UnpoolError(
            f"--scheduler {scheduler}: expected the address of a Dask scheduler, got no answer ({error}). "
            "Start one with: dask scheduler"
        ) from error
