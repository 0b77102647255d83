"""What a model says of itself."""

from dataclasses import dataclass

import onnx

NO_VERSION = 2**63 - 1
"""Onnxruntime's word for a model that does not say its version."""


@dataclass(frozen=True)
class ModelMetadata:
    """What a model says of itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


def metadata_of(model: onnx.ModelProto) -> ModelMetadata:
    """The words of a model."""
    return ModelMetadata(
        model.producer_name,
        model.graph.name,
        model.domain,
        model.doc_string,
        model.graph.doc_string,
        model.model_version if model.HasField("model_version") else NO_VERSION,
        {entry.key: entry.value for entry in model.metadata_props},
    )
