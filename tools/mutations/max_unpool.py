"""Faults against sections 1 and 2 of the contract."""

from tools.mutations.record import Mutation

RESOLVING = "operators/max_unpool.py"

SCATTER = "kernels/cpu/max_unpool/scatter.py"

OUTPUT_SHAPE = (
    Mutation(
        "1.1",
        RESOLVING,
        'if compat == "ort" and index_space == "auto":',
        'if compat == "ort" and index_space == "inferred":',
        "under ort, auto guesses instead of counting in the output",
    ),
    Mutation(
        "1.1",
        RESOLVING,
        "covers = all(big >= little >= 0",
        "covers = all(big > little >= 0",
        "auto guesses only where every axis is larger",
    ),
    Mutation(
        "1.1",
        RESOLVING,
        'if spec.index_space == "inferred" and not covers:',
        'if spec.index_space == "inferred" and min(inferred) < 0:',
        "index_space='inferred' takes an output_shape without room for the block",
    ),
    Mutation(
        "1.1",
        "execute/max_unpool.py",
        "planes, (1 + len(steps), 1)),",
        "planes, (1 + len(steps), 1 + len(steps))),",
        "indices that fit neither shape count in the inferred one",
    ),
    Mutation(
        "1.1",
        SCATTER,
        "if not start <= np.int64(index % large) < start + axis.window:",
        "if not start <= np.int64(index % large) <= start + axis.window:",
        "a window holds one cell too many when indices are fitted",
    ),
    Mutation(
        "1.2",
        RESOLVING,
        "Axis(big, little, window, pads[0])",
        "Axis(big, little, window)",
        "windows that indices must fit forget the pads",
    ),
    Mutation(
        "1.2",
        "execute/max_unpool.py",
        "Axis(size, axis.small, axis.window, axis.begin)",
        "Axis(size, axis.small, axis.window)",
        "windows in the inferred shape forget the pads",
    ),
    Mutation(
        "1.3",
        RESOLVING,
        'given.get("strides"), rank, 1)',
        'given.get("strides", given["kernel_shape"]), rank, 1)',
        "strides default to the kernel",
    ),
    Mutation(
        "1.3",
        RESOLVING,
        "padding=sum(spec.pads[number]))",
        "padding=2 * spec.pads[number][0])",
        "the pad at the begin counts for both ends",
    ),
    Mutation(
        "1.3",
        RESOLVING,
        "if min(spatial) < 0:",
        "if min(spatial) <= 0:",
        "an empty inferred size is refused",
    ),
    Mutation(
        "1.4",
        RESOLVING,
        "planes * math.prod(spatial) < planes * math.prod(inferred):",
        "planes * math.prod(spatial) <= planes * math.prod(inferred):",
        "ort refuses another shape of as many elements",
    ),
    Mutation(
        "1.4",
        RESOLVING,
        'if spec.compat == "ort" and min(inferred) >= 0',
        "if min(inferred) >= 0",
        "a smaller output_shape is refused outside ort too",
    ),
    Mutation(
        "1.4",
        RESOLVING,
        'if spec.index_space == "auto" and not covers:',
        'if spec.index_space == "auto" and min(inferred) < 0:',
        "auto counts in an inferred shape that the smaller output_shape cannot hold",
    ),
    Mutation(
        "1.5",
        RESOLVING,
        "if output_shape[:2] != (small.batch, small.channels):",
        "if output_shape[:1] != (small.batch,):",
        "the channels of output_shape are not checked",
    ),
    Mutation(
        "1.5",
        RESOLVING,
        "if min(output_shape) < 0:",
        "if min(output_shape) <= 0:",
        "an empty output_shape is refused",
    ),
    Mutation(
        "1.5",
        "execute/__init__.py",
        'index_type(version.label, "output_shape", output_shape.dtype)',
        'index_type(version.label, "output_shape", np.dtype(np.int64))',
        "output_shape may have any type",
    ),
)

INDICES = (
    Mutation(
        "2.1",
        "kernels/cpu/machine/plan.py",
        "return 2 if any(each >= 0 for each in results)",
        "return 2 if any(each > 0 for each in results)",
        "the first index is not checked",
    ),
    Mutation(
        "2.1",
        SCATTER,
        "if lowest < 0 or highest >= limit:",
        "if lowest < -1 or highest >= limit:",
        "-1 wraps around to the last cell",
    ),
    Mutation(
        "2.2",
        SCATTER,
        "y[np.uint64(index)] = x[np.uint64(place)]",
        "y[index] = x[place] if y[index] == 0 else y[index]",
        "the first of equal indices wins",
    ),
    Mutation(
        "2.3",
        SCATTER,
        "then=(1, 1 + len(local), OUT_OF_RANGE)",
        "then=(1, OUT_OF_RANGE, OUT_OF_RANGE)",
        "an index into another plane is refused",
    ),
    Mutation(
        "2.4",
        RESOLVING,
        "if indices_shape != small.in_onnx_order():",
        "if indices_shape[2:] != small.spatial:",
        "N and C of I are not checked",
    ),
    Mutation(
        "2.4",
        RESOLVING,
        "if indices_shape != small.in_onnx_order():",
        "if math.prod(indices_shape) != math.prod(small.in_onnx_order()):",
        "I may have any shape of as many elements",
    ),
    Mutation(
        "2.5",
        RESOLVING,
        'given["kernel_shape"], rank, 1)',
        'given["kernel_shape"], rank, 0)',
        "a kernel of 0 is taken",
    ),
    Mutation(
        "2.5",
        "operators/attributes.py",
        "if len(values) != 2 * rank:",
        "if len(values) < 2 * rank:",
        "too many pads are not refused as such",
    ),
    Mutation(
        "2.5",
        RESOLVING,
        "if len(small.spatial) != len(spec.windows):",
        "if len(small.spatial) < len(spec.windows):",
        "a kernel_shape with too few values is not refused as such",
    ),
    Mutation(
        "2.6",
        "execute/max_unpool.py",
        "elements, positions = contiguous(x, self.version),",
        "elements, positions = contiguous(x + 0, self.version),",
        "-0 becomes +0 on the way",
    ),
    Mutation(
        "2.6",
        "geometry.py",
        "return (small - 1) * window.stride + extra",
        "return max(0, small - 1) * window.stride + extra",
        "an axis without cells grows as if it had one",
    ),
    Mutation(
        "2.7",
        RESOLVING,
        "return upsampled_size(small, spec.windows[number],",
        "return upsampled_size(small, spec.windows[number], extra=int(spec.version.since_version == 9),",
        "version 9 infers one cell more than 11 and 22",
    ),
)

MUTATIONS = OUTPUT_SHAPE + INDICES
