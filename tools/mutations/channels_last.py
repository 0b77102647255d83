"""Faults against section 6 of the contract: the domain com.ms.internal.nhwc and its activations."""

from tools.mutations.record import Mutation

VERSIONS = "operators/contract.py"
NAMES = "operators/attributes.py"
FORMULAS = "kernels/cpu/activation.py"

DOMAIN = (
    Mutation(
        "6.1",
        VERSIONS,
        "each.since_version <= NEWEST_NHWC",
        "each.since_version <= 22",
        "the domain has a version 22",
    ),
    Mutation(
        "6.1",
        VERSIONS,
        "each.since_version <= opset]",
        "each.since_version < opset]",
        "an opset selects the version below its own",
    ),
    Mutation(
        "6.2",
        VERSIONS,
        "{**chosen.attributes, **_ACTIVATION}",
        "chosen.attributes | (_ACTIVATION if channels_last or operator != 'MaxPool' else {})",
        "channels-first pools refuse activations",
    ),
    Mutation(
        "6.2",
        VERSIONS,
        "_pool(22, _POOL_10,",
        "_pool(22, _POOL_10 | _ACTIVATION,",
        "ONNX's own MaxPool 22 takes activations",
    ),
    Mutation(
        "6.3",
        "kernels/cpu/conv_transpose/dispatch.py",
        "before = convert_steps(x, first, batch, problem.small, channels)",
        "before = convert_steps(x, first, 1, x.size)",
        "X is read as if its channels were first",
    ),
    Mutation(
        "6.3",
        "kernels/cpu/conv_transpose/dispatch.py",
        "after = convert_steps(sums, y, batch, maps, problem.large)",
        "after = convert_steps(sums, y, 1, y.size)",
        "Y is written as if its channels were first",
    ),
    Mutation(
        "6.3",
        "operators/max_unpool.py",
        "return output_shape[2:]",
        "return output_shape[1:-1] if spec.version.is_channels_last else output_shape[2:]",
        "output_shape is read channels-last",
    ),
    Mutation(
        "6.4",
        "execute/max_pool.py",
        "indices = np.moveaxis(places, -1, 1)",
        "indices = np.swapaxes(places, -1, 1)",
        "Indices come with their first and last spatial axes exchanged",
    ),
    Mutation(
        "6.4",
        "operators/max_unpool.py",
        "if indices_shape != small.in_onnx_order():",
        "if indices_shape != small.in_layout(spec.version):",
        "I needs the shape of X",
    ),
    Mutation(
        "6.4",
        "execute/max_unpool.py",
        "channels = call.small.channels if self.version.is_channels_last else 1",
        "channels = 1",
        "indices count in memory order",
    ),
    Mutation(
        "6.6",
        VERSIONS,
        "replace(each, domain=NHWC, attributes=",
        "replace(each, domain=NHWC, switches=frozenset(), attributes=",
        "ConvTranspose 1 of the domain cuts as 11",
    ),
    Mutation(
        "6.6",
        "execute/max_pool.py",
        "if call.spec.is_column_major:",
        "if call.spec.is_column_major and not call.spec.version.is_channels_last:",
        "storage_order has no effect on channels-last data",
    ),
)

ACTIVATIONS = (
    Mutation(
        "6.5",
        NAMES,
        "params[1] >= float(np.finfo(np.float32).max)",
        "params[1] > float(np.finfo(np.float32).max)",
        "Relu up to the largest float32 is refused",
    ),
    Mutation(
        "6.5",
        NAMES,
        "if len(params) != len(expected):",
        "if len(params) < len(expected):",
        "surplus parameters are not refused",
    ),
    Mutation(
        "6.5",
        NAMES,
        'activation.name not in ("Relu", "Clip")',
        'activation.name not in ("Relu", "Clip", "LeakyRelu")',
        "int8 and uint8 know LeakyRelu",
    ),
    Mutation(
        "6.5",
        FORMULAS,
        "vec.select(x > high, high, x)",
        "vec.select((x > high) & (low < high), high, x)",
        "min wins over max where they cross",
    ),
    Mutation("6.5", FORMULAS, "(1 / 6, 0.5, 0.0)", "(1 / 5, 0.5, 0.0)", "HardSwish is steeper"),
    Mutation("6.5", FORMULAS, "np.rint(value)", "np.trunc(value)", "integer bounds are cut instead of rounded"),
)

MUTATIONS = DOMAIN + ACTIVATIONS
