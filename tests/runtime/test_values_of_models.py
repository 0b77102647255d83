"""Values that onnx does not infer, maps and sparse tensors beside nodes of unpool, in bodies too."""

import numpy as np
from numpy.testing import assert_array_equal
from onnx import TensorProto, helper, numpy_helper

import unpool
from tests.support import models

X = models.random(1, 2, 4, 4)
POOL = f"p, i = MaxPool <{models.POOL}> (x)"


def test_domains_of_onnxruntime_in_bodies():
    """Operators that onnx does not know have their types from onnxruntime, in bodies too."""
    model = models.model(
        f"""g (bool k, float[1, 2, 4, 4] x) => (float[n, c, h, w] y) {{
            g = com.microsoft.QuickGelu (x)
            y = If (k) <then_branch = a () => (float[n, c, h, w] o) {{
                    e = com.microsoft.QuickGelu (g)
                    p, i = MaxPool <{models.POOL}> (e)
                    o = com.microsoft.QuickGelu (p) }},
                else_branch = b () => (float[n, c, h, w] q) {{ q = Identity (g) }}>
        }}""",
        imports=', "com.microsoft" : 1',
    )
    session = unpool.InferenceSession(model)

    def gelu(x):
        return x / (1 + np.exp(-1.702 * x))

    (got,) = session.run(None, {"k": np.array(True), "x": X})
    pooled = unpool.max_pool(gelu(gelu(X)), kernel_shape=[2, 2], strides=[2, 2])
    np.testing.assert_allclose(got, gelu(pooled), rtol=1e-5, atol=1e-6)


def test_maps_behind_our_nodes():
    """What ai.onnx.ml makes of an output of ours, a sequence of maps, goes on to the caller and to a partition."""
    kind = helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    )
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p", "i"], kernel_shape=[2], strides=[2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("ZipMap", ["f"], ["z"], domain="ai.onnx.ml", classlabels_int64s=[10, 20]),
    ]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 1, 4]), helper.make_value_info("z", kind)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    session = unpool.InferenceSession(helper.make_model(graph, opset_imports=imports, ir_version=8))
    assert session.run(None, {"x": np.float32([[[1, 3, 4, 2]], [[5, 0, 0, 6]]])}) == [[{10: 3, 20: 4}, {10: 5, 20: 6}]]


def test_sparse_initializers_in_bodies():
    """A sparse tensor from around a body, read by a node of ours and by one of onnxruntime."""
    model = models.model(
        """g (bool k, float[1, 2, 4] x) => (float[1, 3, m] y) {
            y = If (k) <then_branch = a () => (float[1, 3, m] p) {
                    t = ConvTranspose (x, w) s = Abs (w) p = Conv (t, s) },
                else_branch = b () => (float[1, 3, m] q) { q = ConvTranspose (x, w) }>
        }""",
        w=(models.random(3, 3, 2) * (models.random(3, 3, 2) > 0)),
    )
    model.graph.input[1].type.tensor_type.shape.dim[1].dim_value = 3
    feed = {"k": np.array(True), "x": models.random(1, 3, 4)}
    (expected,) = unpool.InferenceSession(model).run(None, feed)
    dense = numpy_helper.to_array(model.graph.initializer[0])
    places = np.flatnonzero(dense)
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(dense.ravel()[places], "w"), numpy_helper.from_array(places, "places"), dense.shape
    )
    del model.graph.initializer[:]
    model.graph.sparse_initializer.append(sparse)
    assert_array_equal(unpool.InferenceSession(model).run(None, feed)[0], expected)
