"""Methods of onnxruntime.InferenceSession that a session imitates: providers, devices, profiles, async runs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from unpool.errors import UnpoolError
from unpool.runtime.backends.ort_backend import ort_message
from unpool.runtime.backends.ort_options import CPU, OPENVINO, UNPOOL, config_entry, reads_model_config
from unpool.runtime.errors import RUNNING, as_onnxruntime, error_class
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.session.executor import Executor
from unpool.runtime.session.load import SessionConfig
from unpool.runtime.session.passthrough import OrtModel
from unpool.runtime.session.signature import ModelMetadata, ValueInfo

RECORDS = "session.record_ep_graph_assignment_info"
"""The config entry with which onnxruntime records the provider of every node."""


class AssignedNode(NamedTuple):
    """A node that a provider runs."""

    name: str
    domain: str
    op_type: str


class AssignedSubgraph(NamedTuple):
    """The nodes that a provider runs in one step of the plan."""

    ep_name: str
    nodes: list[AssignedNode]

    def get_nodes(self) -> list[AssignedNode]:
        """The same nodes."""
        return self.nodes


class OrtSessionMethods:
    """Methods of a session about its inputs, outputs, providers and profile."""

    _config: SessionConfig
    _model: Executor | OrtModel
    _options: onnxruntime.SessionOptions
    _sess: Any

    def get_inputs(self) -> list[ValueInfo]:
        """Name, shape and type of every required input."""
        return self._model.signature.inputs

    def get_outputs(self) -> list[ValueInfo]:
        """Name, shape and type of every output."""
        return self._model.signature.outputs

    def get_overridable_initializers(self) -> list[ValueInfo]:
        """Name, shape and type of every input with a default value."""
        return self._model.signature.optional_inputs

    def get_modelmeta(self) -> ModelMetadata:
        """The metadata of the model."""
        return self._model.metadata

    def get_session_options(self) -> onnxruntime.SessionOptions:
        """The options, as they were when the session was made."""
        return self._options

    def get_providers(self) -> list[str]:
        """Unpool's provider, then those of partitions."""
        return [UNPOOL, *self._config.all_providers.names]

    def get_provider_options(self) -> dict[str, dict[str, Any]]:
        """Options by provider."""
        providers = self._config.all_providers
        return {UNPOOL: {}, **dict(zip(providers.names, providers.options, strict=True))}

    def enable_fallback(self) -> None:
        """Let partitions whose provider fails in a run change to the CPU."""
        self._enable_fallback = True
        for session in self._model.ort_sessions:
            session.enable_fallback()

    def disable_fallback(self) -> None:
        """Let partitions whose provider fails in a run raise its error."""
        self._enable_fallback = False
        for session in self._model.ort_sessions:
            session.disable_fallback()

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: Any, device_type: str, device_id: int = 0, vendor_id: int = -1
    ) -> onnxruntime.OrtValue:
        """An OrtValue that only this session may use."""
        if isinstance(self._model, OrtModel):
            arguments = shape, element_type, device_type, device_id, vendor_id
            return self._model.session.create_ortvalue_from_shape_and_type(*arguments)
        vendor = [] if vendor_id == -1 else [vendor_id]
        value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id, *vendor)
        value._session = self._sess
        return value

    def get_input_memory_infos(self) -> list[Any]:
        """The memory of each input: of the CPU or the session's GPU, or as onnxruntime has it for the whole model."""
        if isinstance(self._model, OrtModel):
            return list(self._model.session.get_input_memory_infos())
        return [_memory_info(self._model) for _ in self.get_inputs()]

    def get_output_memory_infos(self) -> list[Any]:
        """The memory of each output, as of each input."""
        if isinstance(self._model, OrtModel):
            return list(self._model.session.get_output_memory_infos())
        return [_memory_info(self._model) for _ in self.get_outputs()]

    def get_input_epdevices(self) -> list[Any]:
        """The device of onnxruntime that reads each input; None in a session that unpool plans."""
        if isinstance(self._model, OrtModel):
            return list(self._model.session.get_input_epdevices())
        return [None] * len(self.get_inputs())

    def get_provider_graph_assignment_info(self) -> Sequence[Any]:
        """The provider of every node, one entry per step of the plan.

        Raises:
            UnpoolError: the options have no entry that asks for it; also onnxruntime's Fail.
        """
        if isinstance(self._model, OrtModel):
            return list(self._model.session.get_provider_graph_assignment_info())
        if config_entry(self._options, RECORDS) != "1":
            raise error_class(UnpoolError, "Fail")(
                f"get_provider_graph_assignment_info: Session configuration entry '{RECORDS}' must be set to \"1\", "
                f"got {config_entry(self._options, RECORDS)!r}. Add it by SessionOptions.add_session_config_entry."
            )
        ort_provider = self._config.all_providers.of_onnxruntime.names[0]
        providers = {"unpool": UNPOOL, "onnxruntime": ort_provider, "openvino": OPENVINO}
        assigned: dict[int, AssignedSubgraph] = {}
        for row in self._model.plan:
            subgraph = assigned.setdefault(row.step, AssignedSubgraph(providers.get(row.runner, CPU), []))
            subgraph.nodes.append(AssignedNode(row.node, row.domain, row.operator))
        for number, subgraph in assigned.items():
            folded = self._model.folded[self._model.plan.steps[number]]
            subgraph.nodes.extend(AssignedNode(name, "", operator) for name, operator in folded)
        return list(assigned.values())

    def get_tuning_results(self) -> list[Any]:
        """The tuning results of the providers of partitions."""
        return [result for session in self._model.ort_sessions for result in session.get_tuning_results()]

    def set_tuning_results(self, results: Sequence[Mapping[str, Any]], *, error_on_invalid: bool = False) -> None:
        """Set earlier tuning results of the providers of partitions.

        Raises:
            UnpoolError: `error_on_invalid`, and the session has no such provider; also a RuntimeError.
        """
        unknown = [str(result.get("ep")) for result in results if result.get("ep") not in self.get_providers()]
        if unknown and error_on_invalid:
            raise error_class(UnpoolError, RuntimeError)(
                f"set_tuning_results: expected results of {', '.join(self.get_providers())}; "
                f"got those of {', '.join(unknown)}. Remove them."
            )
        for session in self._model.ort_sessions:
            session.set_tuning_results(results, error_on_invalid=error_on_invalid)

    def set_ep_dynamic_options(self, options: dict[str, str]) -> None:
        """Set options of the providers of partitions."""
        for session in self._model.ort_sessions:
            session.set_ep_dynamic_options(options)

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Release a graph that providers of partitions captured; the CPU captures none."""
        for session in self._model.ort_sessions:
            if hasattr(session, "release_captured_graph"):
                session.release_captured_graph(graph_annotation_id)

    def end_profiling(self) -> str:
        """The name of the Chrome trace of all runs; "" unless the options enable profiling, and after the first call.

        It has an event for loading, one for every run, and one for every step. A deleted session writes it too.
        """
        if isinstance(self._model, OrtModel):
            return str(self._model.session.end_profiling())
        return "" if self._model.profile is None else self._model.profile.end()

    def get_profiling_start_time_ns(self) -> int:
        """The start of profiling, in nanoseconds of `time.monotonic_ns`; 0 without profiling."""
        if isinstance(self._model, OrtModel):
            return int(self._model.session.get_profiling_start_time_ns())
        return 0 if self._model.profile is None else self._model.profile.start

    def _private_attributes(self) -> dict[str, Any]:
        """Private attributes of onnxruntime's session, which some libraries read in place of the methods."""
        reads_config = self._config.reads_config
        return {
            "_captured_graph_bindings": {},
            "_fallback_providers": [CPU],
            "_from_model_package": False,
            "_input_epdevices": self.get_input_epdevices(),
            "_input_meminfos": self.get_input_memory_infos(),
            "_inputs_meta": self.get_inputs(),
            "_model_meta": self.get_modelmeta(),
            "_output_meminfos": self.get_output_memory_infos(),
            "_outputs_meta": self.get_outputs(),
            "_overridable_initializers": self.get_overridable_initializers(),
            "_profiling_start_time_ns": self.get_profiling_start_time_ns(),
            "_provider_options": self.get_provider_options(),
            "_providers": self.get_providers(),
            "_read_config_from_model": reads_model_config() if reads_config is None else reads_config,
            "_sess_options": self.get_session_options(),
            "_sess_options_initial": self._config.options,
        }


def _memory_info(model: Executor) -> Any:
    kind = onnxruntime.OrtAllocatorType.ORT_DEVICE_ALLOCATOR
    name, index = ("Cpu", 0) if model.cuda is None else ("Cuda", model.cuda.index)
    return onnxruntime.OrtMemoryInfo(name, kind, index, onnxruntime.OrtMemType.DEFAULT)


@contextmanager
def session_errors() -> Iterator[None]:
    """Errors inside the block become UnpoolErrors that are onnxruntime's too."""
    try:
        yield
    except UnpoolError as error:
        if isinstance(error, RuntimeError):
            raise
        raise as_onnxruntime(error, RUNNING) from error.__cause__
    except Exception as error:
        raise error_class(UnpoolError, type(error))(
            f"onnxruntime cannot run the model: {ort_message(error)}."
        ) from error
