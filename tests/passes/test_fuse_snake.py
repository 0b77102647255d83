"""The nodes of Snake become one step of unpool, and the Conv between two such steps with them."""

import numpy as np
import onnxruntime
import pytest

import unpool
from tests.support import models
from tests.support.passes import steps
from unpool.passes import fuse_snake

SNAKE = "m = Mul (f, c) s = Sin (m) p = Pow (s, two) g = Mul (h, p) y = Add (c, g)"
UP = "c = ConvTranspose <strides = [2]> (x, w)"
FUSED = {
    "as exported": (f"{UP} {SNAKE}", ("Mul->m", "Pow->p", "Mul->g", "Add->y")),
    "the other way round": (
        f"{UP} m = Mul (c, f) s = Sin (m) p = Pow (s, two) g = Mul (p, h) y = Add (g, c)",
        ("Mul->m", "Pow->p", "Mul->g", "Add->y"),
    ),
    "after a Reshape": (
        f"t = ConvTranspose <strides = [2]> (x, w) c = Reshape (t, same) {SNAKE}",
        ("Reshape->c", "Mul->m", "Pow->p", "Mul->g", "Add->y"),
    ),
    "one frequency": (f"{UP} {SNAKE.replace('(f, c)', '(two, c)')}", ("Mul->m", "Pow->p", "Mul->g", "Add->y")),
}
KEPT = {
    "another power": f"{UP} {SNAKE.replace('two', 'three')}",
    "a sum with something else": f"{UP} {SNAKE.replace('Add (c, g)', 'Add (m, g)')}",
    "a sine that is read twice": f"{UP} {SNAKE.replace('y =', 'a =')} y = Add (a, s)",
    "a frequency of positions": f"{UP} {SNAKE.replace('(f, c)', '(positions, c)')}",
    "a frequency that is fed": f"{UP} k = ReduceMax <keepdims = 0> (x) {SNAKE.replace('(f, c)', '(k, c)')}",
}
SHAPE = (1, 4, 300)


def network(body, *, sizes="1, 4, 300", **constants):
    """A model of a ConvTranspose to 6 channels, or more, and what follows."""
    return models.model(
        f"net (float[{sizes}] x) => (y) {{ {body} }}",
        **{
            "w": models.random(4, 6, 4),
            "f": np.abs(models.random(1, 6, 1)) + 0.5,
            "h": models.random(6, 1, seed=1),
            "two": np.float32(2),
            "three": np.float32(3),
            "positions": models.random(602),
            "same": np.array([1, 6, -1]),
            **constants,
        },
    )


def assert_same(session, model, x):
    """The session gives what onnxruntime gives."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    outputs = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
    for got, expected in zip(session.run(None, {"x": x}), outputs, strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def rows(session, operator):
    """Runners and reasons of the nodes of an operator, or of two."""
    return [(row.runner, row.text) for row in steps(session) if row.operator in operator]


@pytest.fixture
def cheap_steps(monkeypatch):
    """Snakes of the sizes of these tests are worth a step."""
    monkeypatch.setattr(fuse_snake, "LEAST_SIZE", 0)


@pytest.mark.usefixtures("cheap_steps")
@pytest.mark.parametrize("name", FUSED)
def test_every_form_gives_what_the_nodes_give(name):
    """The plan says which nodes are in the step."""
    body, folded = FUSED[name]
    model = network(body)
    session = unpool.InferenceSession(model)
    ((runner, reason),) = rows(session, ("Sin", "Snake"))
    assert runner == "unpool"
    assert f"with {', '.join(folded)} folded in" in reason
    assert_same(session, model, models.random(*SHAPE))
    assert_same(session, model, np.float32(1e7) * models.random(*SHAPE))


@pytest.mark.usefixtures("cheap_steps")
@pytest.mark.parametrize("name", KEPT)
def test_other_nodes_stay_in_onnxruntime(name):
    """What is not surely a Snake is computed as it is written."""
    model = network(KEPT[name])
    session = unpool.InferenceSession(model)
    assert {runner for runner, _ in rows(session, ("Sin", "Snake"))} == {"onnxruntime"}
    assert_same(session, model, models.random(*SHAPE))


@pytest.mark.usefixtures("cheap_steps")
def test_sizes_may_be_unknown():
    """One session for all of them; other numbers of images, too."""
    model = network(f"{UP} {SNAKE}", sizes="n, 4, l")
    session = unpool.InferenceSession(model)
    assert [runner for runner, _ in rows(session, ("Sin", "Snake"))] == ["unpool"]
    for shape in ((1, 4, 30), (3, 4, 7)):
        assert_same(session, model, models.random(*shape))


def test_a_small_snake_stays():
    """A step costs more than it saves."""
    model = network(f"{UP} {SNAKE}")
    assert rows(unpool.InferenceSession(model), ("Sin", "Snake"))[0][0] == "onnxruntime"


@pytest.mark.usefixtures("cheap_steps")
def test_a_snake_before_indices_stays():
    """Rounded otherwise, another element may be the largest."""
    body = f"{UP} {SNAKE.replace('y =', 'a =')} y, i = MaxPool <kernel_shape = [2]> (a)"
    model = network(body)
    graph = model.graph
    graph.output.add(name="i")
    assert rows(unpool.InferenceSession(model), ("Sin", "Snake"))[0][0] == "onnxruntime"


SUMS = {
    "that others read": f"c = Add (u, r) {SNAKE.replace('y =', 'a =')} y = Sub (a, c)",
    "that is an output": f"y = Add (r, u) {SNAKE.replace('y =', 'a =').replace('c)', 'y)').replace('(c,', '(y,')}",
    "that nothing else reads": f"c = Add (r, u) {SNAKE}",
    "after a Reshape": f"d = Add (r, u) c = Reshape (d, same) {SNAKE.replace('y =', 'a =')} y = Sub (a, d)",
}


@pytest.mark.usefixtures("cheap_steps")
@pytest.mark.parametrize("name", SUMS)
def test_a_sum_before_a_snake_is_part_of_its_step(name):
    """It is another output where something else reads it."""
    model = network(f"u = ConvTranspose <strides = [2]> (x, w) r = Cos (u) {SUMS[name]}")
    if name == "that is an output":
        model.graph.output.add(name="a")
    session = unpool.InferenceSession(model)
    ((runner, reason),) = rows(session, ("Sin", "Snake"))
    assert runner == "unpool"
    assert "Add->" in reason
    assert_same(session, model, models.random(*SHAPE))


@pytest.mark.usefixtures("cheap_steps")
def test_a_sum_that_broadcasts_stays():
    """The step adds arrays of the same shape."""
    model = network(f"u = ConvTranspose <strides = [2]> (x, w) r = ReduceMax <axes = [2]> (u) c = Add (u, r) {SNAKE}")
    session = unpool.InferenceSession(model)
    assert rows(session, ("Add",))[0][0] == "onnxruntime"
    assert rows(session, ("Sin", "Snake"))[0][0] == "unpool"
    assert_same(session, model, models.random(*SHAPE))


NORMALIZED = """n = ReduceL2 <axes = [1, 2]> (v) d = Div (gain, n) w = Mul (v, d)
    y = ConvTranspose <strides = [2]> (x, w)"""


def test_weights_that_an_input_changes_are_no_constants():
    """They are made in every run."""
    model = models.model(
        f"net (float[1, 4, 300] x, float[4, 1, 1] gain) => (y) {{ {NORMALIZED} }}", v=models.random(4, 6, 4)
    )
    session, x = unpool.InferenceSession(model), models.random(*SHAPE)
    one, two = (session.run(None, {"x": x, "gain": np.full((4, 1, 1), gain, np.float32)})[0] for gain in (1, 2))
    np.testing.assert_allclose(two, 2 * one, rtol=1e-6)


def test_weights_may_be_an_output_too():
    """And a long chain of nodes may make them."""
    chain = " ".join(f"w{number + 1} = Neg (w{number})" for number in range(2000))
    model = models.model(
        f"net (float[1, 4, 300] x) => (y, w2000) {{ {chain} y = ConvTranspose (x, w2000) }}", w0=models.random(4, 6, 4)
    )
    session = unpool.InferenceSession(model)
    assert [row.operator for row in steps(session) if row.runner == "unpool"] == ["ConvTranspose"]
    assert_same(session, model, models.random(*SHAPE))
