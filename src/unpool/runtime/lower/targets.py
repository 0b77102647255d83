"""The deployment targets as data. What a target takes was read on the pages named in `sources`, on 2026-11-22.

OpenVINO and onnxruntime are installed where this is tested, the others are not: of those, only the pages are known.
"""

from collections.abc import Iterable, Mapping

from unpool.errors import UnsupportedError
from unpool.runtime.lower.target import Target, words

_GITHUB = "https://github.com"

OPENVINO = Target(
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
    doubled=2,
    runtime="OpenVINO",
    has_indices=True,
    drops_windows=False,
    sources=(f"{_GITHUB}/openvinotoolkit/openvino/blob/b2cfecf8/src/frontends/onnx/docs/supported_ops.md",),
)

TENSORRT = Target(
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

COREML = Target(
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
    otherwise="onnxruntime's CPU provider runs them",
    sources=(
        f"{_GITHUB}/microsoft/onnxruntime/blob/04f568d8/tools/ci_build/github/apple/coreml_supported_mlprogram_ops.md",
    ),
)

TFLITE = Target(
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

ONNXRUNTIME_WEB = Target(
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
    otherwise="onnxruntime's CPU provider runs them",
    sources=(f"{_GITHUB}/microsoft/onnxruntime/blob/51f61772/js/web/docs/webgpu-operators.md",),
)

_NAMED = (OPENVINO, TENSORRT, COREML, TFLITE, ONNXRUNTIME_WEB)


def _together(targets: Iterable[Target]) -> Target:
    """What all of the targets take that have nobody to run the rest."""
    alone = [one for one in targets if not one.otherwise]
    return Target(
        name="any",
        title=f"all of {', '.join(one.name for one in targets)}",
        operators=frozenset.intersection(*(one.operators for one in alone)),
        ranks={"MaxPool": (2,), "AveragePool": (2,), "Conv": (1, 2), "ConvTranspose": (1, 2)},
        sources=tuple(source for one in targets for source in one.sources),
    )


TARGETS: Mapping[str, Target] = {one.name: one for one in (*_NAMED, _together(_NAMED))}


def target_of(target: str | Target) -> Target:
    """The target of this name, or the target itself.

    Raises:
        UnsupportedError: there is none of this name.
    """
    if isinstance(target, Target):
        return target
    if target not in TARGETS:
        raise UnsupportedError(f"lower: expected a target of {', '.join(TARGETS)}; got {target!r}. Choose one of them.")
    return TARGETS[target]
