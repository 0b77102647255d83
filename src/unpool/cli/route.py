"""How `unpool run` computes an item.

what is asked for                                                     route
--resume, --level, .zarr as input or output                           windows; another output is an error
--tile or --max-memory, tensors of numbers
    into .npy, .tif, .zarr or .nii, without --overlay                 windows
    into other files, with --overlay, or to standard output           temporary files
    class numbers that the model computes, into a file of numbers     whole; with --max-memory an error
--tile or --max-memory, other outputs, such as sequences              whole; with --max-memory an error
nothing of these                                                      whole
"""

from enum import StrEnum

from unpool.cli.errors import UsageError
from unpool.cli.inputs import Item
from unpool.cli.windows import ModelRun
from unpool.errors import UnsupportedError


class Route(StrEnum):
    """A way from the files of an item to its results."""

    WHOLE = "whole"  # inputs are read, and outputs held, in one piece
    WINDOWS = "windows"  # windows of the inputs are read, and go straight into the output files
    TEMPORARY_FILES = "temporary files"  # windows go into temporary files, and from there into the output files


def route(run: ModelRun, item: Item) -> Route:
    """The route of an item; an error where its inputs and options allow none."""
    config = run.config
    if config.needs_windows or any(source.is_for_windows for source in item.sources.values()):
        if config.may_take_windows:
            return Route.WINDOWS
        fact = "such inputs are read in windows, which go to .npy, .tif, .zarr or .nii without --overlay"
        raise UsageError(f"-o {config.output}: {fact}. Choose another output.")
    if config.tiles is None:
        return Route.WHOLE
    if run.are_outputs_plain and config.may_take_windows:
        return Route.WINDOWS
    if run.are_outputs_plain and (config.is_drawn or not run.gives_class_numbers):
        return Route.TEMPORARY_FILES
    if config.max_memory is None:
        return Route.WHOLE
    name, kind = next(iter(run.outputs.items()))
    fact = f"output {name!r}, {kind}, would be held whole to become .{config.format}"
    raise UnsupportedError(f"--max-memory: {fact}. Leave --max-memory out, or write .npy without --argmax.")
