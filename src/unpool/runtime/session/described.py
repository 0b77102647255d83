"""What a session says of its model, of its providers and of its devices."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unpool.errors import UnpoolError
from unpool.runtime.errors import also
from unpool.runtime.plan.lines import Record
from unpool.runtime.plan.plan import Plan
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.ort_copies import entry
from unpool.runtime.runners.ort_options import CPU, OPENVINO, OURS
from unpool.runtime.session.loaded import LoadedModel
from unpool.runtime.session.metadata import ModelMetadata
from unpool.runtime.session.profile import Profile
from unpool.runtime.session.signature import ValueInfo
from unpool.runtime.session.told import Told
from unpool.runtime.session.whole import WholeModel

RECORDS = "session.record_ep_graph_assignment_info"
"""The entry that has onnxruntime record which provider has which node."""


READS_CONFIG = "ORT_LOAD_CONFIG_FROM_MODEL"
"""The variable of the environment that has onnxruntime take options from the model."""


@dataclass(frozen=True)
class AssignedNode:
    """A node that a provider has."""

    name: str
    domain: str
    op_type: str


@dataclass(frozen=True)
class AssignedSubgraph:
    """What a provider has in one step of the plan."""

    ep_name: str
    nodes: tuple[AssignedNode, ...]

    def get_nodes(self) -> list[AssignedNode]:
        """Its nodes."""
        return list(self.nodes)


class Described:
    """The part of a session that answers questions."""

    _told: Told
    _model: LoadedModel | WholeModel
    _options: onnxruntime.SessionOptions
    _profile: Profile | None

    @property
    def plan(self) -> Plan:
        """Which node runs where and why; iterating gives records, `print` a table."""
        return self._model.plan

    def get_inputs(self) -> list[ValueInfo]:
        """Name, shape and type of every input that has to be fed."""
        return self._model.signature.inputs

    def get_outputs(self) -> list[ValueInfo]:
        """Name, shape and type of every output."""
        return self._model.signature.outputs

    def get_overridable_initializers(self) -> list[ValueInfo]:
        """Name, shape and type of every input that has a value of its own and may be fed."""
        return self._model.signature.optional_inputs

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says of itself."""
        return self._model.metadata

    def get_session_options(self) -> onnxruntime.SessionOptions:
        """The options that the session was made with, as they were then."""
        return self._options

    def get_providers(self) -> list[str]:
        """Ours first, then those of the pieces."""
        return [OURS, *self._told.all_providers.names]

    def get_provider_options(self) -> dict[str, dict[str, Any]]:
        """Options by provider."""
        providers = self._told.all_providers
        return {OURS: {}, **dict(zip(providers.names, providers.options, strict=True))}

    def get_input_memory_infos(self) -> list[Any]:
        """Where each input is read: on the CPU or the session's GPU, or where onnxruntime runs the whole model."""
        if isinstance(self._model, WholeModel):
            return list(self._model.session.get_input_memory_infos())
        return [_memory(self._model) for _ in self.get_inputs()]

    def get_output_memory_infos(self) -> list[Any]:
        """Where each output is written: on the CPU or the session's GPU, or where onnxruntime runs the whole model."""
        if isinstance(self._model, WholeModel):
            return list(self._model.session.get_output_memory_infos())
        return [_memory(self._model) for _ in self.get_outputs()]

    def get_input_epdevices(self) -> list[Any]:
        """The device that reads each input; None where that is not one of onnxruntime's."""
        if isinstance(self._model, WholeModel):
            return list(self._model.session.get_input_epdevices())
        return [None for _ in self.get_inputs()]

    def get_provider_graph_assignment_info(self) -> Sequence[Any]:
        """Which provider has which node, one entry per step of the plan.

        Raises:
            UnpoolError: the options have no entry that asks for it; also onnxruntime's Fail.
        """
        if isinstance(self._model, WholeModel):
            return list(self._model.session.get_provider_graph_assignment_info())
        if entry(self._options, RECORDS) != "1":
            raise also(UnpoolError, "Fail")(
                f"get_provider_graph_assignment_info: Session configuration entry '{RECORDS}' must be set to \"1\", "
                f"got {entry(self._options, RECORDS)!r}. Add it by SessionOptions.add_session_config_entry."
            )
        parts: dict[int, list[Record]] = {}
        for record in self.plan:
            parts.setdefault(record.step, []).append(record)
        steps, folded, first = self.plan.steps, self._model.folded, self._told.all_providers.of_onnxruntime.names[0]
        return [_assigned(records, folded.get(steps[number], ()), first) for number, records in parts.items()]

    def get_tuning_results(self) -> list[Any]:
        """What providers of pieces found out about speed."""
        return [result for piece in self._model.pieces for result in piece.get_tuning_results()]

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, in nanoseconds of `time.monotonic_ns`; 0 without it."""
        if isinstance(self._model, WholeModel):
            return int(self._model.session.get_profiling_start_time_ns())
        return 0 if self._profile is None else self._profile.start

    def _private_attributes(self) -> dict[str, Any]:
        """What onnxruntime's session keeps under private names, which some libraries read in place of the methods."""
        reads_config = self._told.reads_config
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
            "_read_config_from_model": os.environ.get(READS_CONFIG) == "1" if reads_config is None else reads_config,
            "_sess_options": self.get_session_options(),
            "_sess_options_initial": self._told.options,
        }


def _assigned(records: Sequence[Record], folded: Sequence[tuple[str, str]], theirs: str) -> AssignedSubgraph:
    name = {"unpool": OURS, "onnxruntime": theirs, "openvino": OPENVINO}.get(records[0].runner, CPU)
    nodes = [AssignedNode(one.node, one.domain, one.operator) for one in records]
    return AssignedSubgraph(name, (*nodes, *(AssignedNode(label, "", operator) for label, operator in folded)))


def _memory(model: LoadedModel) -> Any:
    kind = onnxruntime.OrtAllocatorType.ORT_DEVICE_ALLOCATOR
    name, index = ("Cpu", 0) if model.cuda is None else ("Cuda", model.cuda.index)
    return onnxruntime.OrtMemoryInfo(name, kind, index, onnxruntime.OrtMemType.DEFAULT)
