"""Loads the pieces that OpenVINO runs, and keeps the reasons why others stay with onnxruntime."""

import logging
from collections.abc import Mapping
from functools import partial

from unpool.runtime.graph.record import Graph
from unpool.runtime.graph.serialized import is_too_large
from unpool.runtime.graph.shapes import Types
from unpool.runtime.graph.weight_files import with_data
from unpool.runtime.plan.openvino_fit import UnfitError, counts, require_fit, require_node
from unpool.runtime.plan.pieces import at_oldest_opset, cut
from unpool.runtime.plan.plan import Step
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.openvino_device import properties
from unpool.runtime.runners.openvino_piece import OpenVinoPiece
from unpool.runtime.runners.ort_options import PieceOptions, Providers
from unpool.runtime.runners.ort_piece import OrtPiece

_LOG = logging.getLogger("unpool")
_LOWEST = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


class OpenVinoLoader:
    """Loads pieces of one graph.

    Args:
        graph: that the pieces are of.
        asked: what a caller tells OpenVINO.
        options: of onnxruntime's pieces; OpenVINO gets as many threads.
        providers: of onnxruntime's pieces.

    Attributes:
        unfit: by every piece that it did not load, the reason.
    """

    def __init__(self, graph: Graph, asked: Mapping[str, str], options: PieceOptions, providers: Providers) -> None:
        self._graph = graph
        self._properties = properties(asked, options.copy.intra_op_num_threads)
        self._options, self._providers = options, providers
        self._optimises = options.graph_optimization_level != _LOWEST
        self._counts = counts(graph)
        self.unfit: dict[Step, str] = {}

    def takes(self, position: int, types: Types) -> bool:
        """Whether OpenVINO computes a node as it is written, as far as is known before a piece is cut."""
        try:
            require_node(self._graph.nodes[position], self._graph, types, self._counts)
        except UnfitError:
            return False
        return bool(self._optimises)

    def load(self, step: Step, types: Types, where: str, *, has_threads: bool) -> OpenVinoPiece | None:
        """The piece; None where onnxruntime is to run it.

        Args:
            step: what to cut out of the graph.
            types: what is known of the values, with no size that could be wrong.
            where: what errors call it.
            has_threads: whether one more piece may have threads of its own.
        """
        try:
            if not self._optimises:
                raise UnfitError("it optimises every piece, and graph_optimization_level says not to")
            if not has_threads:
                raise UnfitError("enough other pieces have threads of their own")
            require_fit(self._graph, step, types, self._counts)
            model = at_oldest_opset(cut(self._graph, step, types, with_data))
            if is_too_large(model):
                raise UnfitError("with its weights it has more than 2 GiB, the limit of an ONNX file")
            spare = partial(OrtPiece, where=where, options=self._options, providers=self._providers)
            return OpenVinoPiece(model, where, self._properties, spare)
        except UnfitError as error:
            self.unfit[step] = str(error)
            _LOG.info("%s runs on onnxruntime, not on OpenVINO: %s", where, error)
            return None
