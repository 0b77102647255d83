"""The route of an item in `unpool run`: every row of the table in `unpool.cli.route`."""

from pathlib import Path

import pytest

from unpool.cli.errors import UsageError
from unpool.cli.inputs import InputFile, Item
from unpool.cli.route import Route, route
from unpool.cli.run_config import RunConfig
from unpool.cli.windows import ModelRun
from unpool.errors import UnsupportedError

PNG, ZARR = Path("x.png"), Path("x.zarr")
FLOAT, INT, SEQUENCE = "tensor(float)", "tensor(int64)", "seq(tensor(float))"


def route_of(form, kind=FLOAT, path=PNG, **options):
    """The route of one file, for a model with one output of a type."""
    config = RunConfig(model=Path("m.onnx"), inputs=[str(path)], target=f"y.{form}", **options)
    run = ModelRun(config, None, {}, {"y": kind}, None, None, None)
    return route(run, Item("x", {"x": InputFile(path)}))


@pytest.mark.parametrize(
    ("expected", "arguments"),
    [
        (Route.WHOLE, {"form": "npy"}),
        (Route.WHOLE, {"form": "png", "argmax": True}),
        (Route.WINDOWS, {"form": "zarr"}),
        (Route.WINDOWS, {"form": "npy", "resume": True}),
        (Route.WINDOWS, {"form": "tif", "level": 1}),
        (Route.WINDOWS, {"form": "npy", "path": ZARR}),
        (Route.WINDOWS, {"form": "nii", "tile": 8}),
        (Route.WINDOWS, {"form": "npy", "kind": INT, "tile": 8, "argmax": True, "max_memory": 9}),
        (Route.TEMPORARY_FILES, {"form": "png", "tile": 8, "argmax": True}),
        (Route.TEMPORARY_FILES, {"form": "npz", "tile": "auto", "max_memory": 9}),
        (Route.TEMPORARY_FILES, {"form": "tif", "tile": 8, "overlay": True}),
        (Route.WHOLE, {"form": "npz", "kind": SEQUENCE, "tile": 8}),
        (Route.WHOLE, {"form": "npz", "kind": INT, "tile": 8, "argmax": True}),
    ],
    ids=str,
)
def test_an_item_takes_its_route(expected, arguments):
    """By its options, its file and the type of the output."""
    assert route_of(**arguments) is expected


def test_what_has_no_route_is_an_error():
    """Windows into a file that is written in one piece, and results that would be held beside a limit of memory."""
    with pytest.raises(UsageError, match="read in windows"):
        route_of("png", path=ZARR, argmax=True)
    with pytest.raises(UnsupportedError, match="would be held whole"):
        route_of("npz", kind=SEQUENCE, tile="auto", max_memory=9)
