"""Faults against what the passes of a session keep."""

from tools.mutations.record import PASSES, Mutation

TESTS = "tests/passes/test_passes.py"

MUTATIONS = (
    Mutation(
        PASSES,
        "passes/reduce_strength.py",
        "alpha=slope.item())",
        "alpha=abs(slope.item()))",
        "a PRelu of one negative slope becomes a LeakyRelu of a positive one",
        TESTS,
    ),
    Mutation(
        PASSES,
        "passes/convert_conv.py",
        'cut = [0] * len(reach) if padding == b"VALID" else pads',
        'cut = [0] * len(reach) if padding == b"VALID" else [pad and 1 for pad in pads]',
        "a converted Conv has pads of 1 where it has larger ones",
        TESTS,
    ),
    Mutation(
        PASSES,
        "passes/fuse_conv_transpose.py",
        'zip(("min", "max"), node.input[1:], strict=False)',
        'zip(("max", "min"), node.input[1:], strict=False)',
        "the bounds of a Clip behind a ConvTranspose change places",
        TESTS,
    ),
)
