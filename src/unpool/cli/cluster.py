"""The work of `unpool run --scheduler`: arrays in files go tile by tile through a Dask cluster into Zarr."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from unpool.cli.errors import UsageError
from unpool.cli.feed import read_feed
from unpool.cli.inputs import Item, Source, split_name
from unpool.cli.model import Slot, open_session, slots
from unpool.cli.run import Outcome, Result
from unpool.cli.run_options import Request
from unpool.errors import MissingFileError, UnpoolError
from unpool.extras import require
from unpool.images.checks import read_errors
from unpool.images.npy import read_header

PATIENCE = "30s"
"""How long a scheduler may take to answer."""


def run(request: Request, scheduler: str) -> Outcome:
    """Run the model on the inputs, and write one Zarr array, or a group of them where there are several outputs.

    Args:
        request: the command line.
        scheduler: address of the cluster, such as tcp://host:8786.

    Returns:
        one result.
    """
    tile = _tile(request)
    session = open_session(request.model, request.session)
    feed = _feed(request, slots(session))
    begin = time.perf_counter()
    if not request.output.path.parent.is_dir():
        raise MissingFileError(f"{request.output.path.parent}: no such folder for the output. Make it first.")
    with _client(scheduler) as client:
        made = session.map_tiles(
            feed,
            tile,
            client=client,
            to=str(request.output.path.absolute()),
            outputs=request.wanted or None,
            layout=request.rule.layout.upper(),
            threads=request.session.threads or 1,
        )
    arrays = {name: (array.shape, str(array.dtype)) for name, array in made.items()}
    return Outcome([Result(request.inputs[0], request.output.path, arrays, time.perf_counter() - begin)], [])


def _tile(request: Request) -> tuple[int, ...]:
    """The size of a tile, once the options are known to go together."""
    require("--scheduler", "dask", "dask", "distributed", "zarr", "numcodecs")
    if not isinstance(request.tiles.size, tuple):
        raise UsageError("--scheduler: expected --tile with sizes such as 1024x1024, for workers share no memory.")
    if request.output.path.suffix != ".zarr" or request.makes_classes or request.softmax:
        raise UsageError(f"--scheduler: expected -o NAME.zarr for the outputs as they are, got {request.output.path}.")
    return request.tiles.size


def _feed(request: Request, wanted: Mapping[str, Slot]) -> dict[str, Any]:
    """Every input: Zarr as it is in storage, .npy mapped, other files read."""
    found: dict[str, Any] = {}
    for text in request.inputs:
        name, path = split_name(text, list(wanted))
        if name is None and len(wanted) != 1:
            raise UsageError(
                f"-i {text}: the model has inputs {', '.join(wanted)}. Say which: -i {next(iter(wanted))}={path}"
            )
        name = name or next(iter(wanted))
        if name in found:
            raise UsageError(f"-i {text}: there is another file for input {name!r}. Run them apart.")
        found[name] = _array(path, name, request, wanted)
        wanted[name].check(found[name], str(path))
    if len(found) < len(wanted):
        raise UnpoolError(f"-i: the model takes {', '.join(wanted)}, got {', '.join(found)}. Add the others.")
    return found


def _array(path: Path, name: str, request: Request, wanted: Mapping[str, Slot]) -> Any:
    if not path.exists():
        raise MissingFileError(f"{path}: no such file or folder.")
    if path.suffix in (".zarr", ".npy"):
        return open_array(path, request.level)
    return read_feed(Item(path.stem, {name: Source(path)}), wanted, request.rule).arrays[name]


def open_array(path: Path, level: int = 0) -> Any:
    """A .zarr or .npy file as an array of which tiles are read.

    Raises:
        FileError, UnsupportedError, ShapeError: as `open_source`.
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
