"""Faults against section 3 of the contract."""

from tools.mutations.record import Mutation

RESOLVING = "operators/max_pool.py"
ATTRIBUTES = "operators/attributes.py"

SIZES = (
    Mutation(
        "3.1",
        "geometry.py",
        "return (large + plus) // by",
        "return max(0, (large + plus) // by)",
        "a negative size becomes an empty output",
    ),
    Mutation(
        "3.1",
        "geometry.py",
        "if room >= 0 else -(-room // window.stride)) + 1",
        "if room >= 0 else room // window.stride) + 1",
        "under ort, the division rounds down",
    ),
    Mutation("3.1", RESOLVING, "if small < 0:", "if small <= 0:", "an empty output is refused"),
    Mutation(
        "3.1",
        RESOLVING,
        "if is_ort and not ceil:",
        'if is_ort and not ceil and spec.padding != "VALID":',
        "under ort, the division rounds down beside VALID",
    ),
    Mutation(
        "3.2",
        "geometry.py",
        "return min(end + window.stride - 1, window.reach - 1)",
        "return min(end + window.stride - 1, window.reach)",
        "a window may start at the first cell of the padding at the end",
    ),
    Mutation(
        "3.2",
        "geometry.py",
        "return min(end + window.stride - 1, window.reach - 1)",
        "return end + window.stride - 1",
        "windows in the padding at the end stay",
    ),
    Mutation(
        "3.2",
        ATTRIBUTES,
        "if value not in (0, 1):",
        "if value < 0:",
        "ceil_mode 2 means 1",
    ),
    Mutation("3.3", RESOLVING, "ceil = spec.ceil and is_ort", "ceil = spec.ceil", "ceil_mode acts under VALID"),
    Mutation(
        "3.3",
        RESOLVING,
        "ceil = spec.ceil and is_ort",
        "ceil = False",
        "under ort, ceil_mode has no effect beside VALID",
    ),
    Mutation("3.4", "geometry.py", "return -(-large // stride)", "return large // stride", "SAME rounds down"),
    Mutation(
        "3.4",
        RESOLVING,
        "small = geometry.same_pooled_size(large, window.stride)",
        "small = geometry.same_pooled_size(large + spec.ceil, window.stride)",
        "ceil_mode adds a window to SAME",
    ),
)

PADDING = (
    Mutation(
        "3.5",
        RESOLVING,
        'OddSide.END if spec.padding == "SAME_UPPER"',
        'OddSide.END if spec.padding == "SAME_LOWER"',
        "the two sides are swapped",
    ),
    Mutation(
        "3.5",
        "geometry.py",
        "extra = total if odd is OddSide.END else total + 1",
        "extra = total",
        "an odd cell goes to the end under SAME_LOWER too",
    ),
    Mutation(
        "3.6",
        "geometry.py",
        "total = (small - 1) * window.stride + window.reach - large",
        "total = (small - 1) * window.stride + window.size - large",
        "SAME counts k where the reach K counts",
    ),
    Mutation(
        "3.7",
        "geometry.py",
        "return extra // 2 if extra >= 0 else -(-extra // 2)",
        "return extra // 2",
        "under ort, a negative half rounds down",
    ),
    Mutation(
        "3.7", RESOLVING, "keep_negative=is_ort", "keep_negative=True", "windows start inside the data outside ort too"
    ),
    Mutation("3.7", RESOLVING, "keep_negative=is_ort", "keep_negative=False", "ort clamps a negative total"),
    Mutation(
        "3.8",
        ATTRIBUTES,
        'attributes.get("auto_pad", "NOTSET") or "NOTSET"',
        'attributes.get("auto_pad", "NOTSET")',
        "the empty string is not NOTSET",
    ),
    Mutation(
        "3.8",
        ATTRIBUTES,
        'if mode != "NOTSET" and any(pads)',
        'if mode != "NOTSET" and pads',
        "zero pads beside auto_pad are refused",
    ),
    Mutation(
        "3.8",
        ATTRIBUTES,
        'if mode != "NOTSET" and any(pads)',
        'if mode not in ("NOTSET", "VALID") and any(pads)',
        "pads beside VALID are ignored",
    ),
    Mutation(
        "3.8",
        RESOLVING,
        'pads_may_be_ignored=compat == "ort"',
        "pads_may_be_ignored=False",
        "ort refuses pads beside auto_pad",
    ),
    Mutation(
        "3.9",
        ATTRIBUTES,
        "zip(values[:rank], values[rank:], strict=True)",
        "zip(values[::2], values[1::2], strict=True)",
        "pads are read as pairs per axis",
    ),
    Mutation(
        "3.9",
        RESOLVING,
        "return pads[0], pooled_size(",
        "return pads[1], pooled_size(",
        "the pad at the end moves the windows",
    ),
    Mutation(
        "3.10", RESOLVING, "if max(pair) >= size:", "if max(pair) > size:", "ort takes pads as wide as the kernel"
    ),
    Mutation(
        "3.10",
        RESOLVING,
        'if compat == "ort":',
        'if compat == "ort" and padding == "NOTSET":',
        "ort takes wide pads beside auto_pad",
    ),
    Mutation(
        "3.10",
        "dtypes.py",
        "int(np.iinfo(dtype).min), 0)",
        "int(np.iinfo(dtype).min) + 1, 0)",
        "an empty window of integers gives one more than the lowest",
    ),
)

VALUES = (
    Mutation(
        "3.11",
        "kernels/cpu/max_pool/compare.py",
        " | (place == vec.splat(nowhere, lanes))",
        "",
        "an element has to exceed the lowest value to count",
    ),
    Mutation(
        "3.12",
        "dtypes.py",
        "infinity = int(np.array(np.inf, dtype).view(bits))",
        "infinity = int(np.array(np.inf, dtype).view(bits)) + 1",
        "the NaN next to infinity is taken for a number",
    ),
    Mutation(
        "3.12",
        "dtypes.py",
        "infinity = int(np.array(np.inf, dtype).view(bits))",
        "infinity = int(np.array(np.inf, dtype).view(bits)) - 1",
        "infinities are taken for NaN",
    ),
    Mutation(
        "3.13",
        "kernels/cpu/vector/maximum.py",
        'larger = emit_comparison(">",',
        'larger = emit_comparison(">=",',
        "the last of equals wins where windows roll, and where blocks reach into padding",
    ),
    Mutation(
        "3.13",
        "kernels/cpu/max_pool/compare.py",
        "_on_data(vec.key_is_larger(key, best.key, nan), best.place, is_data)",
        "_on_data(vec.key_is_larger(key, best.key, nan) | (key == best.key), best.place, is_data)",
        "the last of equals wins where whole windows are walked",
    ),
    Mutation(
        "3.13",
        "kernels/cpu/vector/maximum.py",
        "splat(smallest, lanes) - value, value)",
        "~magnitude, value)",
        "among 16-bit floats, -0 is below +0",
    ),
    Mutation(
        "3.14",
        "kernels/cpu/indices.py",
        "*(math.prod(spatial[:number])",
        "*(math.prod(spatial[number + 1 :])",
        "storage_order 1 takes the sizes behind an axis",
    ),
    Mutation(
        "3.14",
        "kernels/cpu/indices.py",
        "weights = [math.prod(spatial), *",
        "weights = [0, *",
        "storage_order 1 forgets the plane",
    ),
    Mutation(
        "3.14",
        "operators/contract.py",
        '_POOL_1 | {"storage_order": _INT}',
        '_POOL_1 | {"storage_order": _INT, "ceil_mode": _INT}',
        "version 8 knows an attribute of version 10",
    ),
    Mutation(
        "3.15",
        "operators/tensors.py",
        "if len(shape) < 3:",
        "if not 3 <= len(shape) <= 5:",
        "more than three spatial axes are refused",
    ),
    Mutation("3.15", RESOLVING, "if small < 0:", "if small < 0 or large == 0:", "an axis without cells is refused"),
    Mutation(
        "3.16",
        RESOLVING,
        'given.get("strides"), rank, 1)',
        'given.get("strides", given["kernel_shape"]), rank, 1)',
        "strides default to the kernel",
    ),
    Mutation(
        "3.16",
        RESOLVING,
        "if rank != len(spec.windows):",
        "if rank > len(spec.windows):",
        "a kernel_shape with too many values is cut",
    ),
    Mutation("3.16", ATTRIBUTES, "LARGEST = 2**31 - 1", "LARGEST = 2**31", "2**31 is taken"),
    Mutation(
        "3.16",
        ATTRIBUTES,
        "if not least <= value <= LARGEST:",
        "if not least <= value < LARGEST:",
        "2**31 - 1 is refused",
    ),
    Mutation(
        "3.16",
        "operators/contract.py",
        '_KERNEL = frozenset({"kernel_shape"})',
        "_KERNEL: frozenset[str] = frozenset()",
        "a missing kernel_shape is not refused as such",
    ),
    Mutation(
        "3.17",
        "operators/contract.py",
        "_pool(1, _POOL_1, _FLOATS, 1)",
        "_pool(1, _POOL_1, _FLOATS, 2)",
        "version 1 gives Indices",
    ),
    Mutation(
        "3.17",
        "operators/contract.py",
        "if not 1 <= outputs <= self.max_outputs:",
        "if not 1 <= outputs < 3:",
        "every version gives as many outputs as are asked for",
    ),
    Mutation(
        "3.18",
        RESOLVING,
        "return pads[0], pooled_size(",
        "return sum(pads) // 2 if window.stride == window.dilation == 1 else pads[0], pooled_size(",
        "windows of neighbouring elements take their pads as even",
    ),
    Mutation(
        "3.18",
        "execute/max_pool.py",
        "if call.spec.is_column_major:",
        "if call.spec.is_column_major and call.small.spatial != call.large.spatial:",
        "a pool that keeps the size forgets storage_order",
    ),
)

MUTATIONS = SIZES + PADDING + VALUES
