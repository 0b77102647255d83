"""Probes of OrtValue, IOBinding and the names of the module."""

from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto

from conformance.onnxruntime_api.made import bound, total_bound
from conformance.onnxruntime_api.of_options import is_there
from conformance.onnxruntime_api.probe import Ask, Probe
from tests.onnxruntime_api.nets import pools

OF_THE_PACKAGE = {
    *("contextlib", "cuda_version", "import_capi_exception", "onnxruntime_validation", "package_name", "version"),
    *("backend", "datasets", "quantization", "tools", "transformers"),  # modules that appear when they are imported
}


def of_value(name: str, ask: Ask) -> Probe:
    """A probe of a method of OrtValue."""
    return Probe(name, ask, needs=f"OrtValue.{name}")


def made(ort: Any) -> Any:
    """An OrtValue of the input."""
    return ort.OrtValue.ortvalue_from_numpy(pools().x)


def called(name: str) -> Probe:
    """A method of OrtValue without parameters."""
    return of_value(name, lambda ort: getattr(made(ort), name)())


def sparse(ort: Any) -> Any:
    """The shape of a sparse tensor that an OrtValue held."""
    device = ort.OrtDevice.make("cpu", 0)
    tensor = ort.SparseTensor.sparse_coo_from_numpy([9, 9], np.ones(2, np.float32), np.int64([3, 5]), device)
    return ort.OrtValue.ort_value_from_sparse_tensor(tensor).as_sparse_tensor().dense_shape()


def updated(ort: Any) -> Any:
    """The sum of an OrtValue behind an update."""
    value = ort.OrtValue.ortvalue_from_numpy(pools().x.copy())
    value.update_inplace(pools().x * 2)
    return float(value.numpy().sum())


def of_binding(name: str, ask: Ask) -> Probe:
    """A probe of a method of IOBinding."""
    return Probe(name, ask, needs=f"IOBinding.{name}")


def by_address(ort: Any) -> Any:
    """The result of an input that is bound by its address."""
    x = pools().x
    return total_bound(ort, "bind_input", "x", "cpu", 0, np.float32, x.shape, x.ctypes.data)


def into_memory(ort: Any) -> Any:
    """The sum of the caller's memory behind a run that was bound to it."""
    z = np.zeros_like(pools().z)
    total_bound(ort, "bind_output", "z", "cpu", 0, np.float32, z.shape, z.ctypes.data)
    return float(z.sum())


def value_out(ort: Any) -> Any:
    """The sum of an OrtValue behind a run that was bound to it."""
    z = ort.OrtValue.ortvalue_from_numpy(np.zeros_like(pools().z))
    total_bound(ort, "bind_ortvalue_output", "z", z)
    return float(z.numpy().sum())


def after_run(method: str) -> Ask:
    """How many outputs a binding has behind its run."""

    def ask(ort: Any) -> Any:
        session, binding = bound(ort)
        session.run_with_iobinding(binding)
        return len(getattr(binding, method)())

    return ask


def cleared(method: str) -> Ask:
    """What comes of a run behind cleared bindings."""

    def ask(ort: Any) -> Any:
        session, binding = bound(ort)
        getattr(binding, method)()
        return session.run_with_iobinding(binding)

    return ask


VALUE = (
    of_value("as_sparse_tensor", sparse),
    of_value("data_ptr", lambda ort: made(ort).data_ptr() == made(ort).data_ptr()),
    *map(called, ("data_type", "device_name", "element_type")),
    of_value("from_dlpack", lambda ort: ort.OrtValue.from_dlpack(pools().x).shape()),
    *map(called, ("has_value", "is_sparse_tensor", "is_tensor", "is_tensor_sequence")),
    of_value("numpy", lambda ort: float(made(ort).numpy().sum())),
    of_value("ort_value_from_sparse_tensor", sparse),
    of_value("ortvalue_from_numpy", lambda ort: made(ort).shape()),
    of_value(
        "ortvalue_from_numpy_with_onnx_type",
        lambda ort: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.uint16([1]), TensorProto.BFLOAT16).data_type(),
    ),
    of_value(
        "ortvalue_from_shape_and_type", lambda ort: ort.OrtValue.ortvalue_from_shape_and_type([2], np.int8).data_type()
    ),
    *map(called, ("shape", "tensor_size_in_bytes")),
    of_value("update_inplace", updated),
    of_value("__array__", lambda ort: np.asarray(made(ort)).dtype.name),
    of_value("__dlpack__", lambda ort: np.from_dlpack(made(ort)).shape),
    of_value("__dlpack_device__", lambda ort: made(ort).__dlpack_device__()),
)
BINDING = (
    of_binding("bind_cpu_input", lambda ort: total_bound(ort, "bind_cpu_input", "x", pools().x)),
    of_binding("bind_input", by_address),
    of_binding("bind_ortvalue_input", lambda ort: total_bound(ort, "bind_ortvalue_input", "x", made(ort))),
    of_binding("bind_ortvalue_output", value_out),
    of_binding("bind_output", into_memory),
    of_binding("clear_binding_inputs", cleared("clear_binding_inputs")),
    of_binding("clear_binding_outputs", cleared("clear_binding_outputs")),
    of_binding("copy_outputs_to_cpu", after_run("copy_outputs_to_cpu")),
    of_binding("get_outputs", after_run("get_outputs")),
    of_binding("get_outputs_as_ortvaluevector", after_run("get_outputs_as_ortvaluevector")),
    of_binding("synchronize_inputs", lambda ort: bound(ort)[1].synchronize_inputs()),
    of_binding("synchronize_outputs", lambda ort: bound(ort)[1].synchronize_outputs()),
)
NAMES = tuple(
    Probe(name, is_there(name), needs=name)
    for name in sorted(dir(onnxruntime))
    if not name.startswith("_") and name not in OF_THE_PACKAGE
)
SECTIONS = {"OrtValue": VALUE, "IOBinding": BINDING, "Names of the module": NAMES}
