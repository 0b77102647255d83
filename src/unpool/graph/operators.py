"""Facts about ONNX's operators, in a table with a line for each operator.

>>> sorted(having(OperatorFact.GROWING))
['ConvTranspose', 'MaxUnpool']
>>> OperatorFact.KEEPS_SHAPE in FACTS["Relu"], OperatorFact.KEEPS_SHAPE in FACTS["Reshape"]
(True, False)
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class OperatorFact(Enum):
    """A fact that operators share."""

    UNARY = "an element of the output is computed from that of the first input in its place; shapes are the same"
    BROADCASTING = "an element of the output is computed from those of all inputs in its place, which are broadcast"
    REDUCING = "axes of the input are reduced"
    KEEPS_SHAPE = "all outputs have the shape of the first input; every unary operator has this fact, too"
    KEEPS_ORDER = "the elements of the first input in their order, maybe in another shape"
    MOVES = "the elements of the first input, maybe in other places, or in another type"
    SHRINKING = "slides a window over the spatial axes"
    GROWING = "the reverse of that"
    INDEXED = "the second input has places in the first one, or in the output"
    RANDOM = "another output in every run"
    BLOCKED = "after a Conv, onnxruntime leaves its result in the blocked layout, or the node disappears"
    ALIGNED = "before opset 7 an attribute says where the axes of the second input are"
    ROUNDED = (
        "the last bits of an element depend on where it is: onnxruntime computes most in vectors, and the last few of "
        "an array one by one, with another rounding"
    )
    COPYING = "floats are moved only, so that every runtime gives the same bits for finite data"
    OPENVINO = "OpenVINO computes it as onnx's own tests of it expect, or unpool for it"


_TABLE = """
    Abs                       unary copying openvino
    Acos                      unary rounded openvino
    Acosh                     unary openvino
    Add                       broadcasting blocked aligned openvino
    And                       broadcasting aligned openvino
    ArgMax                    openvino
    ArgMin                    openvino
    Asin                      unary rounded openvino
    Asinh                     unary openvino
    Atan                      unary rounded openvino
    Atanh                     unary openvino
    AveragePool               shrinking blocked openvino
    BatchNormalization        keeps_shape blocked openvino
    Bernoulli                 random
    BitShift                  broadcasting
    BitwiseAnd                broadcasting
    BitwiseNot                unary
    BitwiseOr                 broadcasting
    BitwiseXor                broadcasting
    Cast                      keeps_shape moves copying openvino
    CastLike                  keeps_shape
    Ceil                      unary openvino
    Celu                      unary rounded openvino
    Clip                      unary blocked openvino
    Concat                    blocked copying openvino
    Constant                  copying
    ConstantOfShape           copying openvino
    Conv                      shrinking openvino
    ConvTranspose             growing openvino
    Cos                       unary rounded openvino
    Cosh                      unary openvino
    CumSum                    keeps_shape openvino
    DepthToSpace              openvino
    DequantizeLinear          keeps_shape
    Div                       broadcasting aligned openvino
    Dropout                   keeps_shape blocked openvino
    Einsum                    openvino
    Elu                       unary rounded openvino
    Equal                     broadcasting aligned copying openvino
    Erf                       unary openvino
    Exp                       unary rounded openvino
    Expand                    copying openvino
    EyeLike                   openvino
    Flatten                   keeps_order moves copying openvino
    Floor                     unary openvino
    GRU                       openvino
    Gather                    indexed copying openvino
    GatherElements            indexed openvino
    GatherND                  indexed openvino
    Gelu                      unary rounded openvino
    Gemm                      openvino
    GlobalAveragePool         openvino
    GlobalMaxPool             openvino
    Greater                   broadcasting aligned openvino
    GreaterOrEqual            broadcasting openvino
    GroupNormalization        openvino
    HardSigmoid               unary blocked openvino
    HardSwish                 unary blocked openvino
    Hardmax                   keeps_shape openvino
    Identity                  unary keeps_order moves blocked copying openvino
    InstanceNormalization     keeps_shape openvino
    IsInf                     unary openvino
    IsNaN                     unary openvino
    LRN                       keeps_shape rounded openvino
    LSTM                      openvino
    LayerNormalization        openvino
    LeakyRelu                 unary blocked openvino
    Less                      broadcasting aligned openvino
    LessOrEqual               broadcasting openvino
    Log                       unary rounded openvino
    LogSoftmax                keeps_shape openvino
    LpNormalization           keeps_shape openvino
    LpPool                    shrinking openvino
    MatMul                    openvino
    Max                       broadcasting copying openvino
    MaxPool                   shrinking blocked copying openvino
    MaxUnpool                 growing copying openvino
    Mean                      broadcasting openvino
    MeanVarianceNormalization openvino
    Min                       broadcasting copying openvino
    Mish                      unary rounded openvino
    Mod                       broadcasting openvino
    Mul                       broadcasting blocked aligned openvino
    Multinomial               random
    Neg                       unary copying openvino
    Not                       unary openvino
    Or                        broadcasting aligned openvino
    PRelu                     broadcasting keeps_shape aligned openvino
    Pad                       copying openvino
    Pow                       broadcasting aligned openvino
    QuantizeLinear            keeps_shape
    RMSNormalization          openvino
    RNN                       openvino
    RandomNormal              random
    RandomNormalLike          random
    RandomUniform             random
    RandomUniformLike         random
    Range                     copying openvino
    Reciprocal                unary openvino
    ReduceL1                  reducing openvino
    ReduceL2                  reducing openvino
    ReduceLogSum              reducing openvino
    ReduceLogSumExp           reducing openvino
    ReduceMax                 reducing openvino
    ReduceMean                reducing openvino
    ReduceMin                 reducing openvino
    ReduceProd                reducing openvino
    ReduceSum                 reducing openvino
    ReduceSumSquare           reducing openvino
    Relu                      unary blocked copying openvino
    Reshape                   keeps_order moves copying openvino
    Resize                    copying openvino
    ReverseSequence           openvino
    Round                     unary openvino
    ScatterElements           indexed copying openvino
    ScatterND                 indexed copying openvino
    Selu                      unary rounded openvino
    Shape                     copying openvino
    Shrink                    unary openvino
    Sigmoid                   unary blocked rounded openvino
    Sign                      unary openvino
    Sin                       unary rounded openvino
    Sinh                      unary openvino
    Size                      openvino
    Slice                     copying openvino
    Softmax                   keeps_shape openvino
    Softplus                  unary rounded openvino
    Softsign                  unary openvino
    SpaceToDepth              openvino
    Split                     copying openvino
    Sqrt                      unary openvino
    Squeeze                   keeps_order moves copying openvino
    Sub                       broadcasting aligned openvino
    Sum                       broadcasting openvino
    Swish                     unary rounded openvino
    Tan                       unary rounded openvino
    Tanh                      unary blocked rounded openvino
    ThresholdedRelu           unary openvino
    Tile                      copying openvino
    Transpose                 moves copying openvino
    Trilu                     openvino
    Unsqueeze                 keeps_order moves copying openvino
    Where                     broadcasting copying openvino
    Xor                       broadcasting aligned openvino
"""


def _facts(words: list[str]) -> frozenset[OperatorFact]:
    facts = {OperatorFact[word.upper()] for word in words}
    return frozenset(facts | {OperatorFact.KEEPS_SHAPE} if OperatorFact.UNARY in facts else facts)


FACTS: Mapping[str, frozenset[OperatorFact]] = MappingProxyType(
    {name: _facts(words) for name, *words in map(str.split, _TABLE.strip().splitlines())}
)
"""By operator of ONNX's domain, what is known of it."""


def having(*facts: OperatorFact) -> frozenset[str]:
    """The operators that have one of these facts."""
    return frozenset(name for name, known in FACTS.items() if not known.isdisjoint(facts))
