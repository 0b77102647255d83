"""Partitions that onnxruntime runs, their profiles, and weights outside of the model of a partition.

A model is a message of at most 2 GiB, which is written here and parsed there. So large weights go to onnxruntime as
OrtValues next to the model, where each has the name of a data file that does not exist: onnxruntime takes OrtValues
only for external tensors. It copies them while it makes the session (AddExternalInitializers in its C API), so they are
released after that.
"""

import json
import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper
from onnx.external_data_helper import uses_external_data

from unpool.errors import UnpoolError, UnsupportedError
from unpool.runtime.backends.ort_options import CPU, PartitionOptions, Providers, TraceFolder, with_model_config
from unpool.runtime.backends.ort_values import KINDS, NUMPY_LACKS, binding_of, from_ort_value, to_ort_value
from unpool.runtime.backends.step import Partition, RunOptions, Targets, Values
from unpool.runtime.graph.shapes import parse_type
from unpool.runtime.graph.weights import is_in_model_file, is_large, own_array_of, without_folder
from unpool.runtime.requirements import onnxruntime

PACKED = ("tensor(int4)", "tensor(uint4)", "tensor(int2)", "tensor(uint2)", "tensor(float4e2m1)")

MAX_WEIGHT_BYTES = 2**22  # bytes of weights inside the model of a partition; as arrays they load faster
_PLACEHOLDER = "unpool.handed"
_ITEM_SIZES: Mapping[int, int] = {
    helper.np_dtype_to_tensor_dtype(kind): kind.itemsize for kind in KINDS.values() if kind not in NUMPY_LACKS.values()
}
"""Bytes of an element, by the types of ONNX that NumPy has."""


Weights: TypeAlias = Mapping[str, onnxruntime.OrtValue]
NO_WEIGHTS: Weights = MappingProxyType({})


class RefusedError(Exception):
    """onnxruntime refuses a partition. `may_be_invalid` is false if it only says that something is not implemented."""

    def __init__(self, reason: str, *, may_be_invalid: bool) -> None:
        super().__init__(reason)
        self.may_be_invalid = may_be_invalid


class OrtPartition(Partition):
    """A partition that a session of onnxruntime runs on arrays without copies; `trace` is its profile, if any.

    `weights` are those that the model lacks.
    """

    stops_itself = True

    def __init__(
        self, model: bytes, where: str, options: PartitionOptions, providers: Providers, weights: Weights = NO_WEIGHTS
    ) -> None:
        super().__init__(where)
        options = options.with_weights(weights)
        arguments = () if options.has_caller_providers else (list(providers.names), list(providers.options))
        try:
            with options.session_options() as own:
                self.session = onnxruntime.InferenceSession(with_model_config(model, own), own, *arguments)
        except Exception as error:
            is_unimplemented = type(error).__name__ == "NotImplemented"
            raise RefusedError(ort_message(error), may_be_invalid=not is_unimplemented) from error
        self._weights = weights
        if weights and providers.names == (CPU,):  # no provider can fail, after which the session is made again
            self._weights = NO_WEIGHTS
            self.session._sess_options_initial = None  # it has the addresses of the weights
        inputs, outputs = self.session.get_inputs(), self.session.get_outputs()
        self._inputs, self._outputs = ([info.name for info in infos] for infos in (inputs, outputs))
        infos = (*inputs, *outputs)
        for info in infos:
            if info.type in PACKED:
                raise RefusedError(f"it has no arrays of {info.type}, which {info.name!r} is", may_be_invalid=False)
        self.trace = None if options.traces is None else PartitionTrace(self.session, options.traces)
        self._needs_ort_values = any(info.type in NUMPY_LACKS for info in infos)
        self._has_only_numbers = all(info.type in KINDS for info in infos)

    @property
    def output_types(self) -> dict[str, onnx.TypeProto]:
        """The type of each output, without sizes; outputs of a type that ONNX lacks are left out."""
        types = {info.name: parse_type(info.type) for info in self.session.get_outputs()}
        return {name: type_ for name, type_ in types.items() if type_ is not None}

    def _run(self, values: Values, run_options: RunOptions | None, targets: Targets | None) -> list[Any]:
        feed = dict(zip(self._inputs, values, strict=True))
        if targets is not None and self._has_only_numbers:
            return self._run_into(feed, run_options, targets)
        if self._needs_ort_values:
            try:
                ort_feed = {name: to_ort_value(value) for name, value in feed.items() if value is not None}
            except UnsupportedError as error:
                raise self._run_error(error) from error
            outputs = self.session.run_with_ort_values(self._outputs, ort_feed, run_options)
            return [from_ort_value(value) for value in outputs]
        return list(self.session.run(self._outputs, feed, run_options))

    def _run_into(self, feed: dict[str, Any], run_options: RunOptions | None, targets: Targets) -> list[Any]:
        binding = self.session.io_binding()
        arrays = {name: np.asarray(value, order="C") for name, value in feed.items()}  # kept until the end of the run
        for name, array in arrays.items():
            binding.bind_input(name, *binding_of(array))
        for name, target in zip(self._outputs, targets, strict=True):
            binding.bind_output(name, *(() if target is None else binding_of(target)))
        self.session.run_with_iobinding(binding, run_options)
        pairs = zip(targets, binding.get_outputs(), strict=True)
        return [from_ort_value(value) if target is None else target for target, value in pairs]

    def _run_error(self, error: Exception) -> UnpoolError:
        return UnpoolError(f"{self._where}: onnxruntime cannot run it on these inputs: {ort_message(error)}")


class PartitionTrace:
    """The profile of a partition that was loaded just now; `begin` is its start, of `time.perf_counter_ns`."""

    def __init__(self, session: onnxruntime.InferenceSession, folder: TraceFolder) -> None:
        self._session, self._folder = session, folder  # which exists as long as this does
        start = session.get_profiling_start_time_ns()
        age = min((clock() - start for clock in (time.time_ns, time.monotonic_ns)), key=abs)  # which one: by system
        self.begin = time.perf_counter_ns() - age

    def nodes(self) -> Iterable[Mapping[str, Any]]:
        """The events of nodes; none after the first call, and where no file could be written."""
        path = self._session.end_profiling()
        try:
            events = json.loads(Path(path).read_bytes()) if path else []
        except (OSError, ValueError):
            events = []
        return [event for event in events if event.get("cat") == "Node"]


def ort_message(error: Exception) -> str:
    """The first line of onnxruntime's message, without the codes in front of it."""
    text = str(error).strip().splitlines()
    line = text[0].strip() if text else type(error).__name__
    if line.startswith("[ONNXRuntimeError]"):
        line = line.split(" : ", 3)[-1]
    return line.removesuffix(" node with name ''").rstrip(".")


def exceeds_message_limit(tensors: Iterable[onnx.TensorProto]) -> bool:
    """True if those of the tensors that can leave the model have too many bytes to stay inside."""
    sizes = (_ITEM_SIZES[tensor.data_type] * math.prod(tensor.dims) for tensor in tensors if _can_leave(tensor))
    return bool(sum(sizes) > MAX_WEIGHT_BYTES)


def placeholder(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """The tensor without its data, which `weight_values` gives; with data, and no folder, if it has to stay."""
    if not _can_leave(tensor):
        return without_folder(tensor)
    bare = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    bare.data_location = onnx.TensorProto.EXTERNAL
    bare.external_data.add(key="location", value=_PLACEHOLDER)
    return bare


def weight_values(model: onnx.ModelProto, constants: Mapping[str, onnx.TensorProto]) -> dict[str, onnxruntime.OrtValue]:
    """The values of all placeholders in a model, by name; their memory is valid for as long as they are."""
    locations = ((tensor.name, entry) for tensor in model.graph.initializer for entry in tensor.external_data)
    names = [name for name, entry in locations if (entry.key, entry.value) == ("location", _PLACEHOLDER)]
    arrays = {name: own_array_of(constants[name]) for name in names}
    return {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()}


def _can_leave(tensor: onnx.TensorProto) -> bool:
    is_inside = not uses_external_data(tensor) or is_in_model_file(tensor)
    return is_large(tensor) and tensor.data_type in _ITEM_SIZES and is_inside
