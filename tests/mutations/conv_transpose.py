"""Faults against section 4 of the contract."""

from tests.mutations.record import Mutation

RESOLVING = "operators/conv_transpose.py"

SIZES = (
    Mutation(
        "4.1",
        RESOLVING,
        "return rule.pads[0], full - sum(rule.pads)",
        "return rule.pads[1], full - sum(rule.pads)",
        "the pad at the end cuts the begin",
    ),
    Mutation("4.1", RESOLVING, "if large < 0:", "if large <= 0:", "an empty output is refused"),
    Mutation(
        "4.1",
        "geometry.py",
        "extra + window.reach - padding",
        "extra + window.size - padding",
        "the size counts k where the reach K counts",
    ),
    Mutation(
        "4.2",
        RESOLVING,
        "full = grown_size(small, rule.window, extra=rule.extra)",
        'full = grown_size(small, rule.window, extra=0 if spec.padding == "VALID" else rule.extra)',
        "VALID drops output_padding",
    ),
    Mutation(
        "4.2",
        RESOLVING,
        "pads_may_be_ignored=False",
        'pads_may_be_ignored=compat == "ort"',
        "under ort, pads beside auto_pad are ignored",
    ),
    Mutation(
        "4.3",
        RESOLVING,
        "same = small * rule.window.stride",
        "same = (small - 1) * rule.window.stride + 1",
        "SAME ends at the last element",
    ),
    Mutation(
        "4.4",
        RESOLVING,
        'if spec.padding == "SAME_UPPER" else OddSide.BEGIN), same',
        'if spec.padding == "SAME_LOWER" else OddSide.BEGIN), same',
        "the two sides are swapped",
    ),
    Mutation(
        "4.4",
        "geometry.py",
        "return total // 2 if odd is OddSide.END else total - total // 2",
        "return total // 2",
        "an odd cell is cut at the end under SAME_LOWER too",
    ),
    Mutation(
        "4.5",
        RESOLVING,
        'if spec.compat == "ort" and full < same:',
        "if full < same:",
        "SAME is shorter than L * s outside ort too",
    ),
    Mutation(
        "4.5",
        RESOLVING,
        'if spec.compat == "ort" and full < same:',
        'if spec.compat == "ort" and full < small:',
        "ort fills SAME up to L * s",
    ),
    Mutation(
        "4.6",
        RESOLVING,
        "same = small * rule.window.stride",
        "same = small * rule.window.stride + rule.extra",
        "output_padding enters the size of SAME",
    ),
)

OUTPUT_SHAPE = (
    Mutation(
        "4.7",
        RESOLVING,
        'Switch.ODD_SIDE_SWAPPED in spec.row.switches and spec.compat == "spec"',
        "Switch.ODD_SIDE_SWAPPED in spec.row.switches",
        "under ort, version 1 swaps the sides",
    ),
    Mutation(
        "4.7",
        "operators/contract.py",
        "_grow(1, _FLOATS, Switch.ODD_SIDE_SWAPPED, Switch.OUTPUT_PADDING_UNBOUNDED)",
        "_grow(1, _FLOATS, Switch.OUTPUT_PADDING_UNBOUNDED)",
        "version 1 cuts as 11",
    ),
    Mutation(
        "4.7",
        RESOLVING,
        '(spec.padding == "SAME_UPPER") != is_swapped',
        '(spec.padding in ("SAME_UPPER", "VALID")) != is_swapped',
        "VALID cuts as SAME_UPPER",
    ),
    Mutation(
        "4.8",
        "geometry.py",
        "if total < 0:",
        "if total < -1:",
        "one missing cell is added in front under SAME_UPPER",
    ),
    Mutation(
        "4.8",
        RESOLVING,
        "_odd_side_of_output_shape(spec)), rule.asked",
        "_odd_side_of_output_shape(spec)), min(rule.asked, full + 1)",
        "output_shape adds one cell at most",
    ),
    Mutation(
        "4.9",
        RESOLVING,
        "full = grown_size(small, rule.window, extra=rule.extra)",
        "full = grown_size(small, rule.window, extra=rule.extra if rule.asked is None else 0)",
        "output_padding does nothing beside output_shape",
    ),
    Mutation(
        "4.9",
        RESOLVING,
        "return split_begin(full - rule.asked,",
        "return split_begin(full - sum(rule.pads) - rule.asked,",
        "pads move the output beside output_shape",
    ),
    Mutation(
        "4.10",
        RESOLVING,
        "if len(asked) == rank + 2 and asked[:2] == (batch, maps):",
        "if len(asked) == rank + 2:",
        "N and M of output_shape are not checked",
    ),
    Mutation(
        "4.10",
        RESOLVING,
        "else spec.output_shape[-rank:]",
        "else spec.output_shape[:rank]",
        "N and M of output_shape are read as sizes",
    ),
    Mutation("4.10", RESOLVING, "if min(asked) < 0:", "if min(asked) <= 0:", "an empty output_shape is refused"),
)

REST = (
    Mutation(
        "4.11",
        RESOLVING,
        "value >= max(window.stride, window.dilation)",
        "value >= window.stride",
        "the dilation does not bound output_padding",
    ),
    Mutation(
        "4.11",
        RESOLVING,
        "value >= max(window.stride, window.dilation)",
        "value > max(window.stride, window.dilation)",
        "output_padding may reach its bound",
    ),
    Mutation(
        "4.11",
        RESOLVING,
        'if spec.compat == "ort" and value >= window.stride:',
        'if spec.compat == "ort" and value > window.stride:',
        "under ort, output_padding may reach the stride",
    ),
    Mutation(
        "4.11",
        "operators/contract.py",
        "Switch.ODD_SIDE_SWAPPED, Switch.OUTPUT_PADDING_UNBOUNDED)",
        "Switch.ODD_SIDE_SWAPPED)",
        "version 1 bounds output_padding",
    ),
    Mutation(
        "4.12",
        RESOLVING,
        "if small.channels % spec.group:",
        "if small.channels < spec.group:",
        "a group that does not divide C is taken",
    ),
    Mutation(
        "4.12",
        RESOLVING,
        "if w_shape[0] != small.channels:",
        "if w_shape[0] < small.channels:",
        "W may have more channels than X",
    ),
    Mutation("4.12", RESOLVING, "if not 1 <= group <= read.LARGEST:", "if group > read.LARGEST:", "group 0 is taken"),
    Mutation(
        "4.13",
        RESOLVING,
        "b_shape != (maps,):",
        "b_shape[-1:] != (maps,):",
        "a bias of rank 2 is taken",
    ),
    Mutation(
        "4.13",
        "execute.py",
        "bias = np.zeros(call.large.channels, storage.compute) if b is None else b",
        "bias = np.zeros(call.large.channels, storage.compute) if b is None else b[::-1]",
        "the biases go to the output channels backwards",
    ),
    Mutation(
        "4.14",
        RESOLVING,
        "spec.kernel_shape != w_shape[2:]:",
        "len(spec.kernel_shape) != len(w_shape[2:]):",
        "kernel_shape may differ from the window of W",
    ),
    Mutation(
        "4.15",
        RESOLVING,
        'sizes = read.window_list(spec.row, "kernel_shape", sizes, rank, 1)',
        'sizes = read.window_list(spec.row, "kernel_shape", sizes, rank, 0)',
        "a window of size 0 is taken",
    ),
    Mutation(
        "4.15",
        "geometry.py",
        "return (small - 1) * window.stride + extra",
        "return max(0, small - 1) * window.stride + extra",
        "an axis without cells grows as if it had one",
    ),
    Mutation("4.16", "operators/tensors.py", "if len(shape) < 3:", "if len(shape) < 2:", "rank 2 is taken"),
    Mutation(
        "4.16",
        RESOLVING,
        "if len(w_shape) != len(x_shape):",
        "if len(w_shape) < len(x_shape):",
        "a W of higher rank is not refused as such",
    ),
    Mutation(
        "4.17",
        "execute.py",
        "_contiguous(w, row, storage.compute), _contiguous(bias",
        "np.nan_to_num(_contiguous(w, row, storage.compute)), _contiguous(bias",
        "infinite and NaN weights become numbers",
    ),
)

MUTATIONS = SIZES + OUTPUT_SHAPE + REST
