"""Small hand-built ONNX models, one per thing that a session has to cope with; weights are random but fixed."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

NHWC = "com.ms.internal.nhwc"
POOL = "kernel_shape = [2, 2], strides = [2, 2]"


def random(*shape, dtype=np.float32, seed=0):
    """Values around 0 of the given shape, the same for the same arguments."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def model(graph, *, opset=17, ir=8, imports="", functions="", **constants):
    """A model from ONNX's text form; `constants` become initializers."""
    made = parser.parse_model(f'<ir_version: {ir}, opset_import: ["" : {opset}{imports}]> {graph} {functions}')
    made.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return made


def batch_norm(prefix, channels, dtype=np.float32, seed=0):
    """Scale, bias, mean and variance of a BatchNormalization, named prefix + s, b, m, v."""
    s, b, m, v = (random(channels, dtype=dtype, seed=seed + part) for part in range(4))
    return {f"{prefix}s": s + 2, f"{prefix}b": b, f"{prefix}m": m, f"{prefix}v": v * v + 0.5}


def segnet(dtype=np.float32, opset=17, size="12, 10", classes=2):
    """Two levels of Conv, BatchNormalization, Relu and indexed pools, a skip, unpools, a ConvTranspose with its own."""
    name = {np.float32: "float", np.float64: "double", np.float16: "float16"}[dtype]
    return model(
        f"""segnet ({name}[1, 3, {size}] image) => ({name}[1, {classes}, h, w] scores) {{
            c1 = Conv <pads = [1, 1, 1, 1]> (image, w1)
            n1 = BatchNormalization (c1, n1s, n1b, n1m, n1v)
            r1 = Relu (n1)
            p1, i1 = MaxPool <{POOL}> (r1)
            c2 = Conv <pads = [1, 1, 1, 1]> (p1, w2)
            r2 = Relu (c2)
            p2, i2 = MaxPool <kernel_shape = [2, 2]> (r2)
            u2 = MaxUnpool <kernel_shape = [2, 2]> (p2, i2)
            skip = Add (u2, r2)
            d2 = ConvTranspose <pads = [1, 1, 1, 1]> (skip, w3, b3)
            n2 = BatchNormalization (d2, n2s, n2b, n2m, n2v)
            r3 = Relu (n2)
            u1 = MaxUnpool <{POOL}> (r3, i1)
            scores = Conv (u1, w4)
        }}""",
        opset=opset,
        w1=random(4, 3, 3, 3, dtype=dtype),
        w2=random(6, 4, 3, 3, dtype=dtype),
        w3=random(6, 4, 3, 3, dtype=dtype),
        b3=random(4, dtype=dtype),
        w4=random(classes, 4, 1, 1, dtype=dtype),
        **batch_norm("n1", 4, dtype),
        **batch_norm("n2", 4, dtype, seed=9),
    )


def unet3d():
    """A pool and an unpool of volumes, then a Conv that gives two scores."""
    pool = "kernel_shape = [2, 2, 2], strides = [2, 2, 2]"
    return model(
        f"""unet3d (float[1, 1, depth, height, width] volume) => (float[1, 2, d, h, w] scores) {{
            y, i = MaxPool <{pool}> (volume)
            z = MaxUnpool <{pool}> (y, i)
            scores = Conv <pads = [1, 1, 1, 1, 1, 1]> (z, w1)
        }}""",
        w1=random(2, 1, 3, 3, 3),
    )


def branches():
    """Two branches that pool apart and meet again, each with nodes of onnxruntime."""
    return model(
        f"""branches (float[1, 2, 8, 8] x) => (float[1, 2, 8, 8] y) {{
            a = Relu (x)
            b = Neg (x)
            pa, ia = MaxPool <{POOL}> (a)
            pb, ib = MaxPool <{POOL}> (b)
            sa = Sigmoid (pa)
            sb = Tanh (pb)
            ua = MaxUnpool <{POOL}> (sa, ia)
            ub = MaxUnpool <{POOL}> (sb, ib)
            y = Add (ua, ub)
        }}"""
    )


def conditional():
    """An If whose branches pool and grow, reading values of the graph around it."""
    return model(
        f"""conditional (bool keep, float[1, 2, 6, 6] x) => (float[1, 2, h, w] y) {{
            r = Relu (x)
            picked = If (keep) <
                then_branch = shrink () => (float[1, 2, h, w] p) {{ p = MaxPool <{POOL}> (r) }},
                else_branch = grow () => (float[1, 2, h, w] t) {{ t = ConvTranspose <strides = [2, 2]> (r, w1) }}
            >
            y = Neg (picked)
        }}""",
        w1=random(2, 2, 2, 2),
    )


def loop():
    """A Loop whose body holds an If whose branch pools: ours two bodies deep."""
    return model(
        """loop (int64 steps, bool go, float[1, 1, 7] x) => (float[1, 1, 7] y) {
            start = Abs (x)
            y = Loop (steps, go, start) <
                body = once (int64 step, bool before, float[1, 1, 7] now) => (bool after, float[1, 1, 7] next) {
                    after = Identity (before)
                    next = If (before) <
                        then_branch = yes () => (float[1, 1, 7] m)
                            { m = MaxPool <kernel_shape = [3], pads = [1, 1]> (now) },
                        else_branch = no () => (float[1, 1, 7] n) { n = Identity (now) }
                    >
                }
            >
        }"""
    )


def with_function():
    """A model-local function that holds a ConvTranspose with a referenced attribute."""
    return model(
        """with_function (float[1, 2, 4] x) => (float[1, 3, n] y) {
            up = local.Grow <step = [2]> (x, w1)
            y = Relu (up)
        }""",
        imports=', "local" : 1',
        functions="""<domain: "local", opset_import: ["" : 17]>
            Grow <step> (a, b) => (c) { c = ConvTranspose <strides: ints = @step> (a, b) }""",
        w1=random(2, 3, 3),
    )


def nhwc():
    """The three operators in the channels-last domain, between nodes of onnxruntime."""
    return model(
        f"""nhwc (float[1, 2, 6, 6] x) => (float[1, 3, 12, 12] y) {{
            r = Abs (x)
            last = Transpose <perm = [0, 2, 3, 1]> (r)
            p, i = {NHWC}.MaxPool <{POOL}> (last)
            s = Sigmoid (p)
            u = {NHWC}.MaxUnpool <{POOL}> (s, i)
            t = {NHWC}.ConvTranspose <strides = [2, 2], activation = "Relu"> (u, w1, b1)
            y = Transpose <perm = [0, 3, 1, 2]> (t)
        }}""",
        imports=f', "{NHWC}" : 11',
        w1=random(2, 3, 2, 2),
        b1=random(3),
    )


def nhwc_in_onnx():
    """What `nhwc` computes, in ONNX's own operators."""
    return model(
        f"""plain (float[1, 2, 6, 6] x) => (float[1, 3, 12, 12] y) {{
            r = Abs (x)
            p, i = MaxPool <{POOL}> (r)
            s = Sigmoid (p)
            u = MaxUnpool <{POOL}> (s, i)
            t = ConvTranspose <strides = [2, 2]> (u, w1, b1)
            y = Relu (t)
        }}""",
        w1=random(2, 3, 2, 2),
        b1=random(3),
    )


def bfloat16():
    """bfloat16 from a cast through a pool, a Relu and a ConvTranspose to another cast."""
    return model(
        f"""bfloat16 (float[1, 2, 6, 6] x) => (float[1, 3, 6, 6] y) {{
            b = Cast <to = 16> (x)
            p, i = MaxPool <{POOL}> (b)
            r = Relu (p)
            w = Cast <to = 16> (w1)
            t = ConvTranspose <strides = [2, 2]> (r, w)
            y = Cast <to = 1> (t)
        }}""",
        opset=22,
        ir=10,
        w1=random(2, 3, 2, 2),
    )


def optional_input():
    """Weights that are an initializer and an input, so that a caller may feed others."""
    return model(
        """optional_input (float[1, 2, 4] x, float[2, 3, 2] w1, float scale) => (float[1, 3, n] y) {
            t = ConvTranspose <strides = [2]> (x, w1)
            y = Mul (t, scale)
        }""",
        w1=random(2, 3, 2),
        scale=np.float32(2),
    )


def dynamic():
    return model(
        f"""dynamic (float[batch, 2, h, w] x) => (float[batch, 2, h, w] y) {{
            r = Relu (x)
            p, i = MaxPool <{POOL}> (r)
            s = Shape (r)
            y = MaxUnpool <{POOL}> (p, i, s)
        }}"""
    )


def unused_output():
    """An indexed pool whose Indices nobody reads, and a node that no output needs."""
    return model(
        f"""unused_output (float[1, 1, 4, 4] x) => (float[1, 1, 2, 2] y) {{
            y, i = MaxPool <{POOL}> (x)
            nobody = Sigmoid (x)
        }}"""
    )


def passed_through():
    """Outputs that are an input and an initializer, beside one of ours."""
    made = model(
        f"""passed_through (float[1, 1, 4, 4] x) => (float[1, 1, 2, 2] y) {{ y = MaxPool <{POOL}> (x) }}""",
        table=random(3),
    )
    made.graph.output.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 4, 4]))
    made.graph.output.append(helper.make_tensor_value_info("table", TensorProto.FLOAT, [3]))
    return made


def only_pool():
    return model(f"only (float[1, 1, 4, 4] x) => (float[1, 1, 2, 2] y) {{ y = MaxPool <{POOL}> (x) }}")


def none_of_ours():
    return model("none (float[2, 3] x) => (float[2, 3] y) { r = Relu (x) y = Neg (r) }")


def plain_pools(size="8, 8", attributes=POOL, opset=17, kind="float"):
    """A plain MaxPool among other nodes."""
    return model(
        f"plain ({kind}[1, 2, {size}] x) => ({kind}[n, c, h, w] y) "
        f"{{ a = Identity (x) p = MaxPool <{attributes}> (a) y = Identity (p) }}",
        opset=opset,
    )


def weights_from_nodes():
    """Weights from a Constant node behind an Identity, a BatchNormalization and a Mul by a Constant node."""
    made = model(
        """grow (float[1, 2, 3, 4] x) => (float[n, c, h, w] y) {
            w1 = Identity (w0)
            t = ConvTranspose <strides = [2, 2]> (x, w1, b1)
            n = BatchNormalization (t, ns, nb, nm, nv)
            two = Constant <value_float = 2.0> ()
            y = Mul (n, two)
        }""",
        b1=random(4),
        **batch_norm("n", 4),
    )
    value = numpy_helper.from_array(random(2, 4, 2, 2), "value")
    made.graph.node.insert(0, helper.make_node("Constant", [], ["w0"], value=value))
    return made


def foreign_types():
    """A node of onnxruntime's own domain, whose output type onnx cannot infer, before nodes of ours and of ONNX."""
    return model(
        f"""foreign (float[1, 2, 6, 6] x) => (float[n, c, h, w] y) {{
            g = com.microsoft.QuickGelu (x)
            p = MaxPool <{POOL}> (g)
            q = com.microsoft.QuickGelu (p)
            y = Neg (q)
        }}""",
        imports=', "com.microsoft" : 1',
    )


def old_ir():
    """IR version 3: every initializer is an input too, and none can be fed."""
    return model(
        "old (float[1, 2, 4] x, float[2, 3, 2] w1) => (float[1, 3, n] y) { t = ConvTranspose (x, w1) y = Relu (t) }",
        opset=8,
        ir=3,
        w1=random(2, 3, 2),
    )


def save_with_external_data(made, folder):
    """Write the model, its weights in a file of their own; the path of the model."""
    path = folder / "model.onnx"
    onnx.save_model(made, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def halves(channels="1"):
    """A pool at every second position, whose windows overlap."""
    return model(
        f"""halves (float[1, {channels}, height, width] x) => (float[1, {channels}, h, w] y) {{
            y = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x)
        }}"""
    )
