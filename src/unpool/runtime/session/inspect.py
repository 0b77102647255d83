"""The graph that a session runs, prepared again: a session keeps its steps and not their graph."""

from typing import NamedTuple

from unpool.runtime.graph.errors import model_errors
from unpool.runtime.graph.graph import Graph
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.graph.shapes import Types
from unpool.runtime.passes.pipeline import prepare
from unpool.runtime.session.executor import Executor
from unpool.runtime.session.load import load_model
from unpool.runtime.session.session import InferenceSession


class PreparedGraph(NamedTuple):
    """A graph after all passes, the types of its values, and how unpool's operators are read."""

    graph: Graph
    types: Types
    semantics: Semantics


def prepared_graph(session: InferenceSession) -> PreparedGraph:
    """The graph of a session.

    Raises:
        UnpoolError: the file of the model is gone, or is another one now.
    """
    config = session._config
    with model_errors(config.source):
        model, _, options = load_model(config)
        return PreparedGraph(*prepare(model, options.semantics, options.pass_options), options.semantics)


def executor_of(session: InferenceSession) -> Executor:
    """The executor of a session; a new one where onnxruntime runs the whole model."""
    if isinstance(session._model, Executor):
        return session._model
    model, _, options = load_model(session._config)
    return Executor(model, options)
