"""Deployment targets as data, read on the pages in `sources` on 2026-11-22, and the nodes that a target cannot run.

Tests run OpenVINO and onnxruntime. The other targets are described by their pages alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import onnx

from unpool.errors import UnsupportedError
from unpool.graph.nodes import attributes, domain, node_name, with_subgraph_nodes
from unpool.runtime.rewrite.repair_indices import NodeProblem


@dataclass(frozen=True)
class LoweringTarget:
    """A deployment target; every fact is from its sources.

    Attributes:
        name: for `unpool.lower`.
        title: its full name, with the version of the sources.
        operators: of ONNX's own domain, those that it takes.
        max_rank_for_broadcast: up to this number of spatial axes, an unpooling is written by broadcasting along axes of
            its own, see `emit_where_unpool`; it is the faster form where it was measured, docs/lowering.md.
        runtime: its name among the runtimes that may be installed here; "" if it is none of them.
        has_indices: its MaxPool has the second output.
        drops_partial_windows: its MaxPool with ceil_mode drops a window that begins in the padding, as ONNX does.
        ranks: by operator, the numbers of spatial axes that it takes; any number for other operators.
        fallback_note: the runtime of nodes that it does not take; "" where it rejects the model.
        sources: addresses of the pages.
    """

    name: str
    title: str
    operators: frozenset[str]
    max_rank_for_broadcast: int = 0
    runtime: str = ""
    has_indices: bool = False
    drops_partial_windows: bool = True
    ranks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    fallback_note: str = ""
    sources: tuple[str, ...] = ()


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


_GITHUB = "https://github.com"

OPENVINO = LoweringTarget(
    name="openvino",
    title="OpenVINO, its reader of ONNX files",
    operators=words(
        """
        Abs Acos Acosh Add AffineGrid And ArgMax ArgMin Asin Asinh Atan Atanh Attention AveragePool BatchNormalization
        BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor BlackmanWindow Cast CastLike Ceil Celu CenterCropPad Clip
        Col2Im Compress Concat ConcatFromSequence Constant ConstantOfShape Conv ConvInteger ConvTranspose Cos Cosh
        CumSum DFT DepthToSpace DequantizeLinear Div Dropout DynamicQuantizeLinear Einsum Elu Equal Erf Exp Expand
        EyeLike Flatten Floor GRU Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool
        Greater GreaterOrEqual GridSample GroupNormalization HammingWindow HannWindow HardSigmoid HardSwish Hardmax
        Identity If InstanceNormalization IsFinite IsInf IsNaN LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual
        Log LogSoftmax Loop LpNormalization MatMul MatMulInteger Max MaxPool MaxRoiPool Mean MeanVarianceNormalization
        Min Mish Mod Mul Multinomial Neg NegativeLogLikelihoodLoss NonMaxSuppression NonZero Not OneHot Or PRelu Pad Pow
        QLinearConv QLinearMatMul QuantizeLinear RNN RandomNormal RandomNormalLike RandomUniform RandomUniformLike Range
        Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
        ReduceSumSquare Relu Reshape Resize ReverseSequence RoiAlign Round STFT Scan Scatter ScatterElements ScatterND
        Selu Shape Shrink Sigmoid Sign Sin Sinh Size Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub
        Sum Tan Tanh ThresholdedRelu Tile TopK Transpose Trilu Unique Unsqueeze Upsample Where Xor
        """
    ),
    max_rank_for_broadcast=2,
    runtime="OpenVINO",
    has_indices=True,
    drops_partial_windows=False,
    sources=(f"{_GITHUB}/openvinotoolkit/openvino/blob/b2cfecf8/src/frontends/onnx/docs/supported_ops.md",),
)

TENSORRT = LoweringTarget(
    name="tensorrt",
    title="TensorRT 8.5 and later, its reader of ONNX files",
    operators=words(
        """
        Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization Cast Ceil Celu Clip
        Concat Constant ConstantOfShape Conv ConvTranspose Cos Cosh CumSum DepthToSpace DequantizeLinear Div Dropout
        Einsum Elu Equal Erf Exp Expand EyeLike Flatten Floor GRU Gather GatherElements GatherND Gemm GlobalAveragePool
        GlobalLpPool GlobalMaxPool Greater GreaterOrEqual GridSample HardSigmoid HardSwish Identity If
        InstanceNormalization IsNaN LRN LSTM LeakyRelu Less LessOrEqual Log LogSoftmax Loop LpNormalization LpPool
        MatMul Max MaxPool Mean MeanVarianceNormalization Min Mod Mul Neg NonMaxSuppression NonZero Not OneHot Or PRelu
        Pad Pow QuantizeLinear RNN RandomNormal RandomNormalLike RandomUniform RandomUniformLike Range Reciprocal
        ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
        ReduceSumSquare Relu Reshape Resize ReverseSequence RoiAlign Round Scan Scatter ScatterElements ScatterND Selu
        Shape Shrink Sigmoid Sign Sin Sinh Size Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum
        Tan Tanh ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze Upsample Where Xor
        """
    ),
    ranks={"MaxPool": (2, 3), "AveragePool": (2, 3)},
    sources=(f"{_GITHUB}/onnx/onnx-tensorrt/blob/6d0ab7be/docs/operators.md",),
)

COREML = LoweringTarget(
    name="coreml",
    title="Core ML, as onnxruntime's CoreML provider with ML programs",
    operators=words(
        """
        Add ArgMax AveragePool Cast Ceil Clip Concat Conv ConvTranspose Cos DepthToSpace Div Elu Erf Exp GatherND Gelu
        Gemm GlobalAveragePool GlobalMaxPool GridSample GroupNormalization HardSigmoid Identity InstanceNormalization
        LayerNormalization LeakyRelu MatMul Max MaxPool Mul PRelu Pow Range Reciprocal ReduceMax ReduceMean ReduceSum
        Relu Reshape Resize Round Shape Sigmoid Sin Slice Softmax Softplus Split Sqrt Squeeze Sub Tanh Tile Transpose
        Unsqueeze
        """
    ),
    ranks={"MaxPool": (2,), "AveragePool": (2,), "Conv": (1, 2)},
    runtime="onnxruntime",
    fallback_note="onnxruntime's CPU provider runs them",
    sources=(
        f"{_GITHUB}/microsoft/onnxruntime/blob/04f568d8/tools/ci_build/github/apple/coreml_supported_mlprogram_ops.md",
    ),
)

TFLITE = LoweringTarget(
    name="tflite",
    title="TensorFlow Lite, through onnx2tf",
    operators=words(
        """
        Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization Bernoulli BitShift
        Cast Ceil Celu Clip Col2Im Compress Concat ConcatFromSequence Constant ConstantOfShape Conv ConvInteger
        ConvTranspose Cos Cosh CumSum DepthToSpace DequantizeLinear Det Div Dropout DynamicQuantizeLinear Einsum Elu
        Equal Erf Exp Expand EyeLike Flatten Floor GRU Gather GatherElements GatherND Gelu Gemm GlobalAveragePool
        GlobalLpPool GlobalMaxPool Greater GreaterOrEqual GridSample HammingWindow HannWindow HardSigmoid HardSwish
        Hardmax Identity If InstanceNormalization IsInf IsNaN LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual
        Log LogSoftmax LpNormalization MatMul MatMulInteger Max MaxPool Mean MeanVarianceNormalization MelWeightMatrix
        Min Mish Mod Mul Multinomial Neg NonMaxSuppression NonZero Not OneHot OptionalGetElement OptionalHasElement Or
        PRelu Pad Pow QLinearConv QLinearMatMul QuantizeLinear RNN RandomNormal RandomNormalLike RandomUniform
        RandomUniformLike Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin
        ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize ReverseSequence RoiAlign Round STFT Scatter
        ScatterElements ScatterND Selu SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert
        SequenceLength Shape Shrink Sigmoid Sign Sin Sinh Size Slice Softmax Softplus Softsign SpaceToDepth Split
        SplitToSequence Sqrt Squeeze StringNormalizer Sub Sum Tan Tanh ThresholdedRelu Tile TopK Transpose Trilu Unique
        Unsqueeze Upsample Where Xor
        """
    ),
    sources=(
        f"{_GITHUB}/PINTO0309/onnx2tf/blob/001faec8/README.md",
        f"{_GITHUB}/PINTO0309/onnx2tf/blob/116bff9b/onnx2tf/ops/MaxUnpool.py",
        f"{_GITHUB}/PINTO0309/onnx2tf/blob/1895b8fa/README.md",
    ),
)

ONNXRUNTIME_WEB = LoweringTarget(
    name="onnxruntime-web",
    title="onnxruntime in a browser, its WebGPU provider",
    operators=words(
        """
        Abs Acos Acosh Add ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization Cast Ceil Clip Concat Conv
        ConvTranspose Cos Cosh Div Einsum Elu Equal Erf Exp Expand Flatten Floor Gather GatherElements Gemm
        GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual If InstanceNormalization LayerNormalization LeakyRelu
        Less LessOrEqual Log MatMul MaxPool Mul Neg Not Pad Pow Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum
        ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize Shape
        Sigmoid Sin Sinh Slice Softmax Split Sqrt Squeeze Sub Tan Tanh ThresholdedRelu Tile Transpose Unsqueeze Where
        """
    ),
    ranks={"Conv": (1, 2), "ConvTranspose": (1, 2)},
    runtime="onnxruntime",
    fallback_note="onnxruntime's CPU provider runs them",
    sources=(f"{_GITHUB}/microsoft/onnxruntime/blob/51f61772/js/web/docs/webgpu-operators.md",),
)

_NAMED = (OPENVINO, TENSORRT, COREML, TFLITE, ONNXRUNTIME_WEB)


ANY = LoweringTarget(
    name="any",
    title=f"all of {', '.join(target.name for target in _NAMED)}",
    operators=frozenset.intersection(*(target.operators for target in _NAMED if not target.fallback_note)),
    ranks={"MaxPool": (2,), "AveragePool": (2,), "Conv": (1, 2), "ConvTranspose": (1, 2)},
    sources=tuple(source for target in _NAMED for source in target.sources),
)
NOTHING_TO_LOWER = "onnxruntime runs MaxUnpool, so nothing is to be lowered. Keep the model, or lower it for 'any'."
TARGETS: Mapping[str, LoweringTarget] = {target.name: target for target in (*_NAMED, ANY)}


def find_target(target: str | LoweringTarget) -> LoweringTarget:
    """The target of this name, or the target itself."""
    if isinstance(target, LoweringTarget):
        return target
    if target == "onnxruntime":
        raise UnsupportedError(f"lower: {NOTHING_TO_LOWER}")
    if target not in TARGETS:
        raise UnsupportedError(f"lower: expected a target of {', '.join(TARGETS)}; got {target!r}.")
    return TARGETS[target]


def unsupported_nodes(model: onnx.ModelProto, target: LoweringTarget) -> Iterator[NodeProblem]:
    """One record per operator that the target does not support, named after its first node; one per unusual node."""
    unsupported: dict[str, list[str]] = {}
    for node in with_subgraph_nodes(model.graph.node):
        if domain(node) != "" or node.op_type not in target.operators:
            unsupported.setdefault(node.op_type, []).append(node_name(node))
        else:
            yield from (NodeProblem(node_name(node), reason) for reason in _restrictions(node, target))
    note = f"; {target.fallback_note}" if target.fallback_note else ""
    for operator, nodes in unsupported.items():
        more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
        yield NodeProblem(f"{nodes[0]}{more}", f"{operator} is not in the list of {target.title}{note}")


def _restrictions(node: onnx.NodeProto, target: LoweringTarget) -> Iterator[str]:
    values = attributes(node)
    rank, ranks = len(values.get("kernel_shape", ())), target.ranks.get(node.op_type, ())
    if ranks and rank and rank not in ranks:
        yield f"{target.name} takes {' or '.join(map(str, ranks))} spatial axes, it has {rank}"
    if node.op_type == "MaxPool" and len(node.output) > 1 and not target.has_indices:
        yield f"{target.name} has no Indices"
    if node.op_type == "MaxPool" and values.get("ceil_mode") and not target.drops_partial_windows:
        yield f"{target.name} keeps a last window that begins in the padding, which ONNX drops; fix the sizes"
    if node.op_type in ("MaxPool", "ConvTranspose") and values.get("auto_pad", b"NOTSET") not in (b"NOTSET", b""):
        yield f"auto_pad={values['auto_pad'].decode()} depends on a size that is open"
    if values.get("output_shape") is not None and node.op_type == "ConvTranspose":
        yield "output_shape depends on a size that is open, or is longer than the windows reach"
