"""An Einsum of two inputs becomes a product of matrices."""

import numpy as np
import pytest

import unpool
from tests.support import models

SPLIT = {
    "bildsk,biokl->bolsd": ((2, 3, 4, 2, 5, 3), (2, 3, 6, 3, 4)),
    "bqcd, dbchw -> bqhw": ((2, 3, 5, 2), (2, 2, 5, 4, 6)),
    "bhwcd,hkdc->bhwk": ((3, 4, 2, 5, 3), (4, 6, 3, 5)),
    "ijm,jmk->ki": ((3, 4, 2), (4, 2, 5)),
    "ijm,ijm->j": ((3, 4, 2), (3, 4, 2)),
    "jmi,mj->i": ((3, 4, 2), (4, 3)),
}
KEPT = {
    "outer": ("i,j->ij", (3,), (4,)),
    "no output": ("ijm,jmk", (3, 4, 2), (4, 2, 5)),
    "an ellipsis": ("...ijm,...jmk->...ik", (2, 3, 4, 2), (2, 4, 2, 5)),
    "a diagonal": ("iik,kij->j", (3, 3, 2), (2, 3, 4)),
    "a sum of one input": ("ijnm,jnk->ik", (3, 4, 2, 2), (4, 2, 5)),
    "a scalar": ("ij,ij->", (3, 4), (3, 4)),
    "one axis": ("ij,jk->ki", (3, 4), (4, 5)),
}


def network(equation, left, right):
    """A model of an Einsum; an unpooling keeps it from being onnxruntime's alone."""
    a, b = (", ".join(map(str, shape)) for shape in (left, right))
    return models.model(
        f"""net (float[{a}] a, float[{b}] b, float[1, 1, 2, 2] v, int64[1, 1, 2, 2] i)
                => (float y, float[1, 1, 4, 4] u) {{
            u = MaxUnpool <{models.POOL}> (v, i)
            s = Neg (a)
            y = Einsum <equation = "{equation}"> (s, b)
        }}""".replace("float y", f"float[{', '.join('d' + str(n) for n in range(rank(equation)))}] y")
    )


def rank(equation):
    """The number of axes of the output."""
    return len(equation.partition("->")[2].strip().replace("...", "e")) if "->" in equation else 2


def run(session, a, b):
    """Y of a session."""
    i = np.array([0, 2, 8, 10]).reshape(1, 1, 2, 2)
    return session.run(["y"], {"a": a, "b": b, "v": models.random(1, 1, 2, 2), "i": i})[0]


def operators(session):
    """The operators of the nodes of a session."""
    return {row.operator for row in session.plan}


@pytest.mark.parametrize("equation", SPLIT)
def test_a_product_gives_the_same(equation):
    """Whatever the order of the labels."""
    left, right = SPLIT[equation]
    session, a, b = unpool.InferenceSession(network(equation, left, right)), models.random(*left), models.random(*right)
    assert "MatMul" in operators(session)
    assert "Einsum" not in operators(session)
    expected = np.einsum(equation.replace(" ", ""), -a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_allclose(run(session, a, b), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", KEPT)
def test_other_forms_stay(name):
    """Those that are more than a product."""
    equation, left, right = KEPT[name]
    session, a, b = unpool.InferenceSession(network(equation, left, right)), models.random(*left), models.random(*right)
    assert "Einsum" in operators(session)
    expected = np.einsum(equation, -a, b)
    np.testing.assert_allclose(run(session, a, b), expected, rtol=1e-5, atol=1e-5)


def test_exact_sessions_keep_the_node():
    """Its last bits may differ."""
    session = unpool.InferenceSession(network("ijm,jmk->ki", (3, 4, 2), (4, 2, 5)), exact=True)
    assert "Einsum" in operators(session)
