"""IOBinding: memory for inputs and outputs, bound once, that runs of a session read and write."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import helper
from onnxruntime.capi.onnxruntime_pybind11_state import OrtValueVector

from unpool.errors import UnpoolError, suggest_name
from unpool.runtime.backends.ort_values import NUMPY_LACKS, array_at
from unpool.runtime.errors import error_class
from unpool.runtime.graph import shapes
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.session.executor import Executor, require_memory

NAME = "cuda"


class IOBinding(onnxruntime.IOBinding):  # type: ignore[misc]  # onnxruntime has no types
    """The binding of a session: onnxruntime's own where it runs the whole model, else `PlanBinding`."""

    def __new__(cls, session: Any) -> "IOBinding":  # noqa: D102
        is_planned = cls is IOBinding and isinstance(getattr(session, "_sess", None), Executor)
        binding: IOBinding = super().__new__(PlanBinding if is_planned else cls)
        binding._session = getattr(session, "_sess", None)  # older releases of onnxruntime do not keep it
        return binding


class PlanBinding(IOBinding):
    """A binding of a session whose model runs in steps: the step that makes a bound output writes it there."""

    def __init__(self, session: Any) -> None:
        self._session: Executor = session._sess
        self._signature, self._cuda = self._session.signature, self._session.cuda
        self._inputs: dict[str, Any] = {}
        self._targets: dict[str, Any] = {}
        self._on_gpu: dict[str, bool] = {}
        self._values: dict[str, onnxruntime.OrtValue] = {}
        self._outputs: dict[str, Any] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Read an input from this array, which is not copied."""
        self._require_known("input", name)
        self._inputs[name] = arr_on_cpu

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Read an input from the memory at an address."""
        self._require_known("input", name)
        self._inputs[name] = self._at(device_type, device_id, buffer_ptr, shape, element_type)

    def bind_ortvalue_input(self, name: str, ortvalue: onnxruntime.OrtValue) -> None:
        """Read an input from an OrtValue, which is not copied."""
        self._require_known("input", name)
        self._signature.require_own([ortvalue])
        self._inputs[name] = self._signature.value_of(ortvalue) if _is_of_numbers(ortvalue) else ortvalue

    def synchronize_inputs(self) -> None:
        """Do nothing: every step waits for its inputs."""

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Write an output to the memory at an address; without an address, every run allocates memory."""
        self._require_known("output", name)
        if buffer_ptr is None:
            self._bind_target(name, None, is_on_gpu=self._is_on_gpu(device_type, device_id))
            return
        if element_type is None or shape is None:
            raise UnpoolError("bind_output: element_type or shape of the memory is missing. Give both.")
        self._bind_target(name, self._at(device_type, device_id, buffer_ptr, shape, element_type))

    def bind_ortvalue_output(self, name: str, ortvalue: onnxruntime.OrtValue) -> None:
        """Write an output to the memory of an OrtValue."""
        self._require_known("output", name)
        self._signature.require_own([ortvalue])
        if not _is_of_numbers(ortvalue):
            raise _binding_error(f"bind_ortvalue_output: expected a tensor of numbers, got {ortvalue.data_type()}")
        self._bind_target(name, self._signature.value_of(ortvalue))
        self._values[name] = ortvalue

    def synchronize_outputs(self) -> None:
        """Wait for the session's own stream on a GPU; without one, a run is complete when it returns."""
        if self._cuda is not None:
            with self._cuda.on_stream():
                self._cuda.wait()

    def get_outputs(self) -> list[onnxruntime.OrtValue]:
        """The outputs of the last run, in the order of their binding; none before the first run."""
        for name, value in self._outputs.items():
            if name in self._values:
                continue
            if self._cuda is not None and not isinstance(value, np.ndarray | list):
                self._values[name] = self._cuda.to_ort_value(value)
            elif isinstance(value, np.ndarray) and value.dtype in NUMPY_LACKS.values():
                bits, element_type = value.view(f"u{value.itemsize}"), helper.np_dtype_to_tensor_dtype(value.dtype)
                self._values[name] = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, element_type)
            else:
                (self._values[name],) = self._signature.as_ort_values([name], [value])
        return [self._values[name] for name in self._targets if name in self._values]

    def get_outputs_as_ortvaluevector(self) -> Any:
        """The same, as onnxruntime's vector."""
        vector = OrtValueVector()
        for value in self.get_outputs():
            vector.push_back(value._get_c_value())
        return vector

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs of the last run as arrays of their own."""
        values = [self._outputs[name] for name in self._targets if name in self._outputs]
        if self._cuda is not None:
            values = [self._cuda.to_host(value) for value in values]
        return [value.copy() if isinstance(value, np.ndarray) else value for value in values]

    def clear_binding_inputs(self) -> None:
        """Unbind all inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Unbind all outputs."""
        self._targets.clear()
        self._on_gpu.clear()
        self._values.clear()
        self._outputs.clear()

    def run(self, run_options: onnxruntime.RunOptions | None) -> None:
        """Run the model on the bound memory; UnpoolErrors are RuntimeErrors too."""
        try:
            if not self._targets:
                raise UnpoolError("run_with_iobinding: no output is bound. Call bind_output for each.")
            infos = {info.name: info for info in self._signature.outputs}
            for name, target in self._targets.items():
                kind = shapes.dtype(shapes.parse_type(infos[name].type))
                if target is not None and kind is not None:  # a shape without sizes may be of any rank
                    require_memory(name, kind, infos[name].shape or target.shape, target, self._cuda)
            outputs = self._session.run_into(self._targets, self._inputs, run_options)
        except UnpoolError as error:
            if isinstance(error, RuntimeError):
                raise
            raise error_class(type(error), RuntimeError)(*error.args) from error
        self._outputs = dict(zip(self._targets, outputs, strict=True))
        for name, target in self._targets.items():
            if target is None:
                self._values.pop(name, None)
                if self._cuda is not None:
                    move = self._cuda.to_device if self._on_gpu[name] else self._cuda.to_host
                    self._outputs[name] = move(self._outputs[name])

    def _is_on_gpu(self, device_type: str, device_id: int) -> bool:
        """True if a device is the session's GPU and not the CPU; other devices are refused."""
        kind = onnxruntime.OrtDevice.make(device_type, device_id).device_type()
        if kind == onnxruntime.OrtDevice.make("cpu", 0).device_type():
            return False
        gpu_kind = None if self._cuda is None else onnxruntime.OrtDevice.make(NAME, 0).device_type()
        if self._cuda is None or kind != gpu_kind or device_id != self._cuda.index:
            devices = "'cpu'" if self._cuda is None else f"'cpu' or {self._cuda}"
            raise _binding_error(f"expected memory of the device {devices}, got {device_type!r}, number {device_id}")
        return True

    def _at(self, device_type: str, device_id: int, address: int, shape: Sequence[int], element_type: Any) -> Any:
        """The array or tensor at an address; elements have a type of NumPy or a number of ONNX."""
        is_number = isinstance(element_type, int)
        kind = np.dtype(helper.tensor_dtype_to_np_dtype(element_type) if is_number else element_type)
        if self._is_on_gpu(device_type, device_id) and self._cuda is not None:
            return self._cuda.at(address, shape, kind)
        return array_at(address, shape, kind)

    def _bind_target(self, name: str, target: Any, *, is_on_gpu: bool = False) -> None:
        self._targets[name] = target
        self._on_gpu[name] = is_on_gpu
        self._values.pop(name, None)
        self._outputs.pop(name, None)

    def _require_known(self, role: str, name: str) -> None:
        signature = self._signature
        infos = signature.outputs if role == "output" else [*signature.inputs, *signature.optional_inputs]
        known = [info.name for info in infos]
        if name not in known:
            advice = suggest_name(name, known)
            raise _binding_error(f"expected an {role} out of {', '.join(known)}; got {name!r}. {advice}")


def _binding_error(text: str) -> UnpoolError:
    return error_class(UnpoolError, RuntimeError)(f"IOBinding: {text}")


def _is_of_numbers(value: onnxruntime.OrtValue) -> bool:
    return bool(value.is_tensor()) and value.data_type() != "tensor(string)"
