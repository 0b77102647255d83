"""Faults against what the passes of a session keep."""

from tools.mutations.record import PASSES, Mutation

TESTS = "tests/passes/test_passes.py"
UNPOOL_TESTS = "tests/passes/test_fuse_unpool.py"
INLINE_TESTS = "tests/passes/test_inline.py"
OPSET_TESTS = "tests/runtime/test_old_models.py"
REDUCE = "passes/reduce_strength.py"
CONVERT = "passes/convert_conv.py"
SNAKE = "passes/fuse_snake.py"
UNPOOL = "passes/fuse_unpool.py"
INLINE = "passes/inline.py"
FOLD = "passes/fuse_conv_transpose.py"
OPSET = "passes/upgrade_opset.py"

MUTATIONS = (
    Mutation(
        PASSES,
        REDUCE,
        "alpha=slope.item())",
        "alpha=abs(slope.item()))",
        "a PRelu of one negative slope becomes a LeakyRelu of a positive one",
        TESTS,
    ),
    Mutation(
        PASSES,
        REDUCE,
        "(slope >= np.finfo(np.float32).smallest_normal) & (slope <= 1)",
        "slope <= 1",
        "a PRelu of negative slopes becomes a Max",
        TESTS,
    ),
    Mutation(
        PASSES,
        REDUCE,
        "or (np.signbit(slope) & (slope == 0)).any()",
        "or False",
        "a PRelu with a slope of -0 becomes a Where, which loses the sign",
        TESTS,
    ),
    Mutation(
        PASSES,
        REDUCE,
        "LARGEST_EXPONENT = 20.0",
        "LARGEST_EXPONENT = 60.0",
        "the square in a Mish overflows",
        TESTS,
    ),
    Mutation(
        PASSES,
        REDUCE,
        "writer.opset < FIRST_SOFTMAX_OF_ONE_AXIS",
        "writer.opset < 11",
        "an old Softmax, of all axes from one on, becomes one of one axis",
        TESTS,
    ),
    Mutation(
        PASSES,
        REDUCE,
        "[_Product(0, batch, rows, summed, columns), _Product(1, batch, columns, summed, rows)]",
        "[_Product(0, batch, rows, summed, columns), _Product(1, batch, rows, summed, columns)]",
        "an Einsum with the second operand on the left keeps the rows of the first",
        TESTS,
    ),
    Mutation(
        PASSES,
        REDUCE,
        "if not (rows and summed and columns) or len(set(first) | set(second)) != len(roles):",
        "if not (rows and summed and columns):",
        "an Einsum that sums an axis of one operand becomes a MatMul",
        TESTS,
    ),
    Mutation(
        PASSES,
        REDUCE,
        '"asymmetric": ("floor",)',
        '"asymmetric": ("floor", "ceil")',
        "a Resize that rounds up repeats elements",
        TESTS,
    ),
    Mutation(
        PASSES,
        REDUCE,
        "if any(factor % 1 for factor in factors)",
        "if any(factor < 1 for factor in factors)",
        "a Resize by a fraction repeats elements",
        TESTS,
    ),
    Mutation(
        PASSES,
        CONVERT,
        'cut = [0] * len(reach) if padding == b"VALID" else pads',
        'cut = [0] * len(reach) if padding == b"VALID" else [pad and 1 for pad in pads]',
        "a converted Conv has pads of 1 where it has larger ones",
        TESTS,
    ),
    Mutation(
        PASSES,
        CONVERT,
        '(padding == b"NOTSET" and len(pads) == 2 * rank)',
        "len(pads) == 2 * rank",
        "a Conv under SAME is converted without pads",
        TESTS,
    ),
    Mutation(
        PASSES,
        CONVERT,
        " or set(strides) - {1}:",
        ":",
        "a Conv with strides is converted",
        TESTS,
    ),
    Mutation(
        PASSES,
        CONVERT,
        'and domain(node) == "" and node.output[0] not in excluded',
        'and domain(node) == ""',
        "a Conv before a MaxPool with Indices is converted",
        TESTS,
    ),
    Mutation(
        PASSES,
        FOLD,
        'zip(("min", "max"), node.input[1:], strict=False)',
        'zip(("max", "min"), node.input[1:], strict=False)',
        "the bounds of a Clip behind a ConvTranspose change places",
        TESTS,
    ),
    Mutation(
        PASSES,
        FOLD,
        "{name for name in graph.single if ",
        "{name for name in types if ",
        "an activation is folded into a ConvTranspose whose result other nodes read",
        TESTS,
    ),
    Mutation(
        PASSES,
        SNAKE,
        "np.stack([frequency, magnitude])",
        "np.stack([magnitude, frequency])",
        "frequency and magnitude of a Snake change places",
        TESTS,
    ),
    Mutation(
        PASSES,
        SNAKE,
        "or exponent.item() != 2 or",
        "or",
        "a sine to another power than 2 counts as a Snake",
        TESTS,
    ),
    Mutation(
        PASSES,
        SNAKE,
        "if len(sizes) > 1 or None in sizes or",
        "if None in sizes or",
        "an Add that broadcasts becomes a part of a Snake",
        TESTS,
    ),
    Mutation(
        PASSES,
        UNPOOL,
        'if attributes(node).get("reduction", b"none") != b"none" or not _is_zero(flow, data):',
        "if not _is_zero(flow, data):",
        "a ScatterND that adds becomes a MaxUnpool",
        UNPOOL_TESTS,
    ),
    Mutation(
        PASSES,
        UNPOOL,
        "and not array.view(np.uint8).any()",
        "",
        "a ScatterND into other numbers than zeros becomes a MaxUnpool",
        UNPOOL_TESTS,
    ),
    Mutation(
        PASSES,
        UNPOOL,
        "else source.pool is not None or has_offsets)",
        "else True)",
        "indices without their offsets are taken to count in the output",
        UNPOOL_TESTS,
    ),
    Mutation(
        PASSES,
        INLINE,
        "names[name] = outputs.get(name) or self._names.fresh(name + suffix)",
        "names[name] = outputs.get(name) or name",
        "a value inside a function keeps its name, which the model may have, too",
        INLINE_TESTS,
    ),
    Mutation(
        PASSES,
        INLINE,
        "(*function.attribute_proto, *call.attribute)",
        "(*call.attribute, *function.attribute_proto)",
        "defaults of a function replace what the call gives",
        INLINE_TESTS,
    ),
    Mutation(
        PASSES,
        OPSET,
        "return len(first) - (axis if axis >= 0 else axis + len(first)) - len(second)",
        "return len(first) - axis - len(second)",
        "a negative axis counts from the front",
        OPSET_TESTS,
    ),
)
