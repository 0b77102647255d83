"""The work of `unpool run --scheduler`: arrays in files go tile by tile through a Dask cluster into Zarr."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from unpool.cli.errors import UsageError
from unpool.cli.feed import read_one
from unpool.cli.inputs import InputFile, input_name, split_name
from unpool.cli.metadata import Metadata
from unpool.cli.model import open_session, slots
from unpool.cli.progress import Outcome, Result
from unpool.cli.render import specs_of
from unpool.cli.run_config import RunConfig
from unpool.errors import MissingFileError, UnpoolError
from unpool.extras import require
from unpool.images.checks import read_errors
from unpool.images.npy import read_header

TIMEOUT = "30s"


def run(config: RunConfig, scheduler: str) -> Outcome:
    """Run the model on the cluster at an address, into one Zarr array, or a group of them for several outputs."""
    require("--scheduler", "dask", "dask", "distributed", "zarr", "numcodecs")
    from distributed import Client

    if not isinstance(config.tile, tuple | int):
        raise UsageError("--scheduler: expected --tile with sizes, such as 1024, because workers share no memory.")
    if config.output.suffix != ".zarr" or config.makes_classes or config.softmax:
        raise UsageError(f"--scheduler: expected -o NAME.zarr for the outputs as they are, got {config.output}.")
    session = open_session(config.model, provider=config.provider, threads=config.threads, **config.semantics)
    feed = _feed(config, session)
    begin = time.perf_counter()
    if not config.output.parent.is_dir():
        raise MissingFileError(f"{config.output.parent}: no such folder for the output. Make it first.")
    try:
        connection = Client(scheduler, timeout=TIMEOUT, set_as_default=False)
    except (OSError, ValueError) as error:
        fact = f"no Dask scheduler answers at this address ({error})"
        raise UnpoolError(f"--scheduler {scheduler}: {fact}. Start one with: dask scheduler") from error
    with connection as client:
        arrays = session.map_tiles(
            feed,
            config.tile,
            client=client,
            to=str(config.output.absolute()),
            outputs=config.output_names or None,
            layout=config.layout.upper(),
            threads=config.threads or 1,
        )
    return Outcome([Result(config.inputs[0], config.output, specs_of(arrays), time.perf_counter() - begin)], [])


def _feed(config: RunConfig, session: Any) -> dict[str, Any]:
    """Every input: Zarr as it is in storage, .npy mapped, other files read."""
    inputs, feed = slots(session), {}
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
            feed[name] = read_one(InputFile(path), inputs[name], Metadata({}, "").pixel_rule(config))[0]
        inputs[name].check(feed[name], str(path))
    if len(feed) < len(inputs):
        raise UnpoolError(f"-i: the model takes {', '.join(inputs)}, got {', '.join(feed)}. Add the others.")
    return feed


def open_array(path: Path, level: int = 0) -> Any:
    """A .zarr or .npy file as an array; tiles of it are read. Raises as `unpool.images.open`."""
    if path.suffix == ".zarr":
        from unpool.images.zarr_store import ZarrReader, open_zarr_array

        return ZarrReader(path, open_zarr_array(path, level))
    with read_errors(str(path), "an array of numbers"):
        with path.open("rb") as stream:
            read_header(stream, path.stat().st_size, str(path))
        return np.load(path, mmap_mode="r", allow_pickle=False)
