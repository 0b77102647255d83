"""Exports networks of the zoo to ONNX files, each once, in a process of its own; nothing is downloaded."""

import gc
import math
import os
import re
import warnings
import zlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.measure import say
from benchmarks.zoo.model_file import ModelFile
from benchmarks.zoo.network import TRACED, UNPOOL, Network
from benchmarks.zoo.networks import matching
from unpool.extras import require

if TYPE_CHECKING:
    import torch

OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK")
"""Environment variables by which the libraries look for nothing on the network."""


def export_missing(networks: Sequence[Network], folder: Path) -> None:
    """Export those networks that the folder does not have, and write down why some cannot be exported.

    Raises:
        MissingExtraError: a package of one of these networks is not installed.
    """
    missing = [network for network in networks if not ModelFile(folder, network.name).is_complete]
    if not missing:
        return
    require("zoo", "zoo", "onnxscript", *dict.fromkeys(network.package for network in missing))
    folder.mkdir(parents=True, exist_ok=True)
    for number, network in enumerate(missing, 1):
        say(f"export {number} of {len(missing)}: {network.name}")
        file = ModelFile(folder, network.name)
        reason = _export_in_process(network.name, folder)
        if reason:
            say(f"{network.name}: {reason}")
            file.fail(reason)
        else:
            file.log.unlink(missing_ok=True)


def _export_in_process(name: str, folder: Path) -> str:
    """Why the network was not exported; "" if it was."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        try:
            return pool.submit(export, name, folder).result()
        except BrokenProcessPool:
            return "the process ended"


def export(name: str, folder: Path) -> str:
    """Build and export one network; called in a process of its own.

    Returns:
        an error of the library or of the exporter, in one line; "" for none.
    """
    os.environ.update(dict.fromkeys(OFFLINE, "1"))
    network = next(network for network in matching([name]) if network.name == name)
    with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        warnings.simplefilter("ignore")
        try:
            _export(network, ModelFile(folder, name))
        except Exception as error:
            return _cause(error)
    return ""


def _cause(error: BaseException) -> str:
    """What an exporter's error comes from, in one line without colors."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", f"{type(error).__name__}: {error}").split())[:400]


def _export(network: Network, file: ModelFile) -> None:
    import torch

    torch.manual_seed(zlib.crc32(network.name.encode()))
    module = network.build().eval().requires_grad_(False)
    if not network.has_initial_weights:
        scale_weights(module)
    arrays = {each.name: each.array() for each in network.inputs}
    args = tuple(map(torch.from_numpy, arrays.values()))
    with torch.no_grad():
        outputs = [output.numpy() for output in _flat(module(*args))]
        if not all(np.isfinite(output).all() for output in outputs):
            raise ValueError("torch's result has values that are not finite")
        part = file.model.with_suffix(".part.onnx")
        _write(network, module, args, [f"output_{number}" for number in range(len(outputs))], part)
    gc.collect()
    part.replace(file.model)
    file.save_arrays(arrays, outputs)


def scale_weights(module: "torch.nn.Module") -> None:
    """Replace the weights of all layers by random numbers that keep values near 1.

    The weights that libraries begin training with make the values of many networks smaller from layer to layer. They
    end as denormal numbers, which trained weights do not give, and which runtimes that do not flush them to zero
    compute many times slower.
    """
    import torch
    from torch import nn

    for layer in module.modules():
        if not isinstance(layer, nn.Linear | nn.modules.conv._ConvNd):
            continue
        terms = layer.weight[0].numel()
        if isinstance(layer, nn.modules.conv._ConvTransposeNd):
            terms = layer.in_channels // layer.groups * max(1, layer.weight[0, 0].numel() // math.prod(layer.stride))
        with torch.no_grad():
            layer.weight.normal_(0, 1 / math.sqrt(terms))


def _write(
    network: Network, module: "torch.nn.Module", args: tuple[Any, ...], outputs: Sequence[str], path: Path
) -> None:
    """Write the ONNX file, with all weights in it."""
    import torch

    import unpool.torch

    options: dict[str, Any] = {"input_names": [each.name for each in network.inputs], "output_names": list(outputs)}
    first = network.inputs[0].name
    names = {axis: f"size_{axis}" for axis in network.dynamic}
    if network.exporter == TRACED:
        options |= {"dynamo": False, "dynamic_axes": {first: names} if names else None, "opset_version": 17}
        torch.onnx.export(module, args, path, **options)
        return
    if names:
        dims = {axis: torch.export.Dim(name) for axis, name in names.items()}
        options["dynamic_shapes"] = (dims, *[None] * (len(args) - 1))
    write = unpool.torch.export if network.exporter == UNPOOL else torch.onnx.export
    write(module, args, path, dynamo=True, external_data=False, verbose=False, **options)


def _flat(result: Any) -> list["torch.Tensor"]:
    """The tensors of a result: itself, or those in its tuples and lists."""
    if isinstance(result, tuple | list):
        return [tensor for each in result for tensor in _flat(each)]
    return [result]
