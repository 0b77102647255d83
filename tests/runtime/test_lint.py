"""`unpool check`: every rule finds what it is there for and nothing else, and what it advises repairs the model."""

import json
from importlib.resources import files

import numpy as np
import onnx
import pytest
import torch

import unpool
from tests.cases import decomposed
from tests.passes.test_fuse_unpool import PLANAR, planar
from tests.support import models, networks
from tests.support.command import invoke
from unpool.cli.errors import FINDINGS, OK, UNFIT, USAGE
from unpool.errors import UnpoolError
from unpool.runtime.lint.lint import lint
from unpool.runtime.rewrite.canonicalise import canonicalise
from unpool.runtime.rewrite.fix import fix

POOL = models.POOL


def pool(attributes, size="1, 2, 9", opset=22):
    return models.model(
        f"pool (float[{size}] x) => (float[n, c, l] y) {{ y = MaxPool <{attributes}> (x) }}", opset=opset, ir=10
    )


def grow(attributes, size="1, 2, 9", opset=22):
    return models.model(
        f"grow (float[{size}] x) => (float[n, c, l] y) {{ y = ConvTranspose <{attributes}> (x, w) }}",
        opset=opset,
        ir=10,
        w=models.random(2, 3, 3),
    )


def unpooling(size, shape, attributes=POOL, pooled=""):
    """A round trip with a constant output_shape."""
    return models.model(
        f"""trip (float[{size}] x) => (float[n, c, h, w] y)
        {{ p, i = MaxPool <{POOL}{pooled}> (x) y = MaxUnpool <{attributes}> (p, i, s) }}""",
        s=np.int64(shape),
    )


FIX, CANONICALISE = "unpool fix", "unpool canonicalise"
FOUND = {
    "1.1 its own input": (unpooling("1, 2, 7, 9", (1, 2, 7, 9)), "1.1", FIX),
    "1.1 the inferred": (unpooling("1, 2, 6, 6", (1, 2, 7, 7)), "1.1", "Leave output_shape out"),
    "1.1 another": (unpooling("1, 2, 6, 6", (1, 2, 7, 7), "kernel_shape = [1, 1]"), "1.1", "Choose attributes"),
    "1.4": (unpooling("1, 2, 7, 7", (1, 2, 7, 7), POOL, ", ceil_mode = 1"), "1.4", FIX),
    "2.3 Mod": (PLANAR["Mod"][0], "2.3", FIX),
    "2.3 second pool": (PLANAR["second pool"][0], "2.3", FIX),
    "2.3 dynamic": (PLANAR["dynamic"][0], "2.3", FIX),
    "3.1": (pool("kernel_shape = [12], strides = [12]"), "3.1", "Use a smaller"),
    "3.2": (
        pool("kernel_shape = [2], strides = [2], pads = [1, 1], ceil_mode = 1"),
        "3.2",
        "Set ceil_mode to 0 and pads to [1, 0]",
    ),
    "3.3": (pool('kernel_shape = [2], strides = [2], auto_pad = "VALID", ceil_mode = 1'), "3.3", CANONICALISE),
    "3.3 open size": (
        pool('kernel_shape = [2], strides = [2], auto_pad = "VALID", ceil_mode = 1', "1, 2, l"),
        "3.3",
        CANONICALISE,
    ),
    "3.5": (pool('kernel_shape = [2], strides = [2], auto_pad = "SAME_LOWER"'), "3.5", CANONICALISE),
    "3.5 open size": (
        pool('kernel_shape = [2], strides = [2], auto_pad = "SAME_LOWER"', "1, 2, l"),
        "3.5",
        f"Export it with fixed sizes, then {CANONICALISE}",
    ),
    "3.6": (pool('kernel_shape = [2], dilations = [2], auto_pad = "SAME_UPPER"'), "3.6", CANONICALISE),
    "3.7": (pool('kernel_shape = [2], strides = [4], auto_pad = "SAME_UPPER"', "1, 2, 12"), "3.7", CANONICALISE),
    "3.8": (pool('kernel_shape = [2], pads = [1, 0], auto_pad = "SAME_UPPER"'), "3.8", "Remove the pads"),
    "3.10 pads": (pool("kernel_shape = [2], pads = [2, 0]"), "3.10", "Reduce the pads"),
    "3.10 dilation": (pool("kernel_shape = [2], dilations = [3], pads = [1, 1]", "1, 2, 2"), "3.10", "Reduce"),
    "3.14": (unpooling("1, 2, 6, 6", (1, 2, 6, 6), POOL, ", storage_order = 1"), "3.14", "Set storage_order to 0"),
    "4.5": (grow('strides = [5], auto_pad = "SAME_UPPER"'), "4.5", CANONICALISE),
    "4.7 version 1": (grow("strides = [2], output_shape = [18]", opset=10), "4.7", CANONICALISE),
    "4.7 upper": (grow('strides = [2], output_shape = [18], auto_pad = "SAME_UPPER"'), "4.7", CANONICALISE),
    "4.8": (grow("strides = [2], output_shape = [25]"), "4.8", CANONICALISE),
    "4.11": (grow("strides = [2], dilations = [3], output_padding = [2]"), "4.11", "Use output_padding below"),
    "7": (decomposed.by_hand(), "7", FIX),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", FOUND)
def test_every_rule_finds_its_form(name):
    """One finding, with the node, the rule, a repair, and words about what is wrong and for whom."""
    model, rule, repair = FOUND[name]
    found, *others = lint(model)
    assert [one.rule for one in others] == (["7"] if "second pool" in name else [])
    assert found.rule == rule
    assert found.repair.startswith(repair)
    assert found.node == f"{found.operator}->{'s' if rule == '7' else 'y'}"
    assert found.problem
    assert found.affected


@pytest.mark.parametrize("name", [name for name, (_, _, repair) in FOUND.items() if repair in (FIX, CANONICALISE)])
def test_the_repair_repairs(name):
    """What the finding advises leads to a model without findings."""
    model, _, repair = FOUND[name]
    names = {size.dim_param for value in model.graph.input for size in value.type.tensor_type.shape.dim}
    sizes = {name: size for name, size in {"n": 2, "h": 6, "w": 4, "l": 9}.items() if name in names}
    done = (fix if repair == FIX else canonicalise)(model, sizes=sizes)
    assert lint(done.model) == ()


@pytest.mark.parametrize("opset", [11, 17, 22])
def test_what_check_says_of_the_reference_is_what_compare_finds(opset):
    """SAME_LOWER gives another shape in onnx's ReferenceEvaluator; what canonicalise writes does not."""
    model = models.model(
        f'g (float[1, 1, 5, 5] x) => (float[1, 1, h, w] y) {{ y = MaxPool <{POOL}, auto_pad = "SAME_LOWER"> (x) }}',
        opset=opset,
    )
    (found,) = lint(model)
    assert (found.rule, "ReferenceEvaluator" in found.affected) == ("3.5", True)
    assert unpool.compare(model, against=["reference"]).differs
    assert not unpool.compare(canonicalise(model).model, against=["reference"]).differs


def test_the_pads_in_place_of_ceil_mode_do_the_same():
    """The pads that the repair of 3.2 names give the same windows."""
    x = models.random(1, 2, 9)
    window = {"kernel_shape": [2], "strides": [2]}
    np.testing.assert_array_equal(
        unpool.max_pool(x, **window, pads=[1, 0]), unpool.max_pool(x, **window, pads=[1, 1], ceil_mode=1)
    )


CLEAN = {
    "1.1 follows": unpooling("1, 2, 6, 8", (1, 2, 6, 8)),
    "2.3 one plane": planar(size="1, 1, 8, 6"),
    "2.3 another remainder": planar(plane=96),
    "3.1 fits": pool("kernel_shape = [9], strides = [12]"),
    "3.1 open size": pool("kernel_shape = [2], strides = [2]", "1, 2, l"),
    "3.2 nothing cut": pool("kernel_shape = [2], strides = [2], ceil_mode = 1"),
    "3.3 no rest": pool('kernel_shape = [3], strides = [3], auto_pad = "VALID", ceil_mode = 1'),
    "3.3 no ceil": pool('kernel_shape = [2], strides = [2], auto_pad = "VALID"'),
    "3.5 no padding": pool('kernel_shape = [2], strides = [2], auto_pad = "SAME_LOWER"', "1, 2, 8"),
    "3.5 upper": pool('kernel_shape = [2], strides = [2], auto_pad = "SAME_UPPER"'),
    "3.6 window of 1": pool('kernel_shape = [1], dilations = [2], auto_pad = "SAME_UPPER"'),
    "3.7 stride within": pool('kernel_shape = [3], strides = [2], auto_pad = "SAME_UPPER"'),
    "3.8 zero pads": pool('kernel_shape = [2], pads = [0, 0], auto_pad = "SAME_UPPER"'),
    "3.10 narrow pads": pool("kernel_shape = [2], dilations = [3], pads = [1, 1]"),
    "3.14 nobody unpools": pool("kernel_shape = [2], storage_order = 1"),
    "4.5 stride within": grow('strides = [2], auto_pad = "SAME_UPPER"'),
    "4.7 version 11": grow("strides = [2], output_shape = [18]"),
    "4.7 even": grow("strides = [2], output_shape = [17]", opset=10),
    "4.8 reached": grow("strides = [2], output_shape = [19]"),
    "4.11 below": grow("strides = [2], output_padding = [1]"),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", CLEAN)
def test_no_rule_finds_what_is_read_alike(name):
    """The nearest form that every runtime reads alike gives no finding."""
    assert lint(CLEAN[name]) == ()


WHOLE = {
    "segnet": models.segnet,
    "old segnet": lambda: models.segnet(opset=9),
    "branches": models.branches,
    "conditional": models.conditional,
    "function": models.with_function,
    "nhwc": models.nhwc,
    "dynamic": models.dynamic,
    "no operator of ours": models.none_of_ours,
    "coins": lambda: onnx.load(str(files("unpool") / "data" / "coins.onnx")),
}


@pytest.mark.parametrize("name", WHOLE)
def test_sound_models_are_clean(name):
    """Whole models without anything wrong give no finding."""
    assert lint(WHOLE[name]()) == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SegNet", "ENet"])
def test_networks_exported_with_our_table_are_clean(name):
    """What the translation table writes needs no repair; what torch writes alone has one finding per unpooling."""
    network, x = networks.build(name)
    assert lint(networks.export(network, x)) == ()
    found = lint(decomposed.export(network, x))
    assert {(one.rule, one.repair) for one in found} == {("7", FIX)}
    assert len(found) == network.levels


def test_nodes_inside_bodies_are_found():
    """A rule about padding looks into branches too."""
    model = models.conditional()
    (branch,) = (one.g for one in model.graph.node[1].attribute if one.name == "then_branch")
    branch.node[0].attribute.append(onnx.helper.make_attribute("pads", [2, 2, 2, 2]))
    assert [(one.node, one.rule) for one in lint(model)] == [("MaxPool->p", "3.10")]


def within(nodes, inner=""):
    """A pool, and an unpooling in the branch of an If in a Loop that sees it."""
    return models.model(
        f"""outer (bool keep, int64 steps, float[2, 3, 8, 6] x) => (float[2, 3, 8, 6] y) {{
            p, i = MaxPool <{POOL}> (x)
            y = Loop (steps, keep, x) <
                body = again (int64 step, bool before, float[2, 3, 8, 6] now) => (bool after, float[2, 3, 8, 6] next) {{
                    after = Identity (before)
                    next = If (before) <
                        then_branch = yes () => (float[2, 3, 8, 6] z)
                            {{ {nodes} z = MaxUnpool <{POOL}> (p, q{inner}) }},
                        else_branch = no () => (float[2, 3, 8, 6] n) {{ n = Neg (now) }}
                    >
                }}
            >
        }}""",
        plane=np.int64([48]),
        shape=np.int64([2, 3, 9, 7]),
    )


INSIDE = {
    "offset": (within("q = Mod (i, plane)"), [("2.3", "unpool fix, once the node is moved out")]),
    "constant": (
        within("size = Constant <value_ints = [48]> () q = Mod (i, size)"),
        [("2.3", "unpool fix, once the node is moved out")],
    ),
    "output_shape": (within("q = Identity (i)", ", shape"), [("1.1", "Leave output_shape out")]),
    "pool in the body": (
        within(f"_, j = MaxPool <{POOL}, storage_order = 1> (x) q = Cast <to = 7> (j)"),
        [("3.14", "Set storage_order")],
    ),
    "clean": (within("q = Identity (i)"), []),
}  # fmt: skip


@pytest.mark.parametrize("name", INSIDE)
def test_indices_inside_bodies_are_judged(name):
    """Rules about indices look into bodies of bodies, and follow indices out of them; no command repairs them there."""
    model, expected = INSIDE[name]
    found = lint(model)
    assert [(one.node, one.rule) for one in found] == [("MaxUnpool->z", rule) for rule, _ in expected]
    assert all(one.repair.startswith(repair) for one, (_, repair) in zip(found, expected, strict=True))


def test_indices_inside_functions_are_judged():
    """A model-local function is judged where it is called, and the repair inlines it."""
    model = models.model(
        f"""caller (float[2, 3, 8, 6] x) => (float[2, 3, 8, 6] y) {{
            p, i = MaxPool <{POOL}> (x) y = local.back (p, i)
        }}""",
        imports=', "local" : 1',
        functions=f"""<domain: "local", opset_import: ["" : 17]>
            back (values, places) => (z) {{
                size = Constant <value_ints = [48]> () q = Mod (places, size) z = MaxUnpool <{POOL}> (values, q)
            }}""",
    )
    (found,) = lint(model)
    assert (found.operator, found.rule, found.repair) == ("MaxUnpool", "2.3", FIX)
    assert lint(fix(model).model) == ()


def test_sizes_that_are_given_are_used():
    """An output_shape can be judged once the open sizes are known; an unknown name is refused."""
    model = models.dynamic()
    assert lint(model) == ()
    assert lint(model, sizes={"h": 8, "w": 6}) == ()
    (found,) = lint(model, sizes={"h": 7, "w": 6})
    assert (found.rule, found.repair) == ("1.1", FIX)
    with pytest.raises(
        UnpoolError, match="expected names from batch, h, w, the dynamic dimensions of the inputs, got d"
    ):
        lint(model, sizes={"d": 3})


def test_a_repair_that_fix_cannot_make_says_why():
    """Indices inside planes and in columns: both rules speak, and the advice is what is left to do."""
    found = {one.rule: one.repair for one in lint(planar(pool=f"{POOL}, storage_order = 1"))}
    assert found == {
        "2.3": "Add (n * C + c) times the size of a plane; unpool fix cannot: its indices come from a MaxPool with "
        "storage_order 1, which MaxUnpool cannot read",
        "3.14": "Set storage_order to 0 on MaxPool->p",
    }


def test_a_model_that_no_reading_accepts_is_refused():
    """A broken contract is an error, no finding."""
    with pytest.raises(UnpoolError, match="MaxPool-22"):
        lint(pool("kernel_shape = [0]"))


@pytest.fixture
def here(here):
    onnx.save(PLANAR["Mod"][0], "wrong.onnx")
    onnx.save(models.segnet(), "clean.onnx")
    return here


def test_cli_check_prints_json(here):
    """Findings as JSON, with the same exit codes."""
    done = invoke("check", "wrong.onnx", "--json")
    assert done.exit_code == FINDINGS
    (found,) = json.loads(done.stdout)["findings"]
    assert (found["node"], found["operator"], found["rule"]) == ("MaxUnpool->y", "MaxUnpool", "2.3")
    done = invoke("check", "clean.onnx", "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (OK, {"model": "clean.onnx", "findings": []})


def test_cli_check_takes_sizes(here):
    """--size fixes an open size; an ill-written one is a usage error."""
    onnx.save(models.dynamic(), "dynamic.onnx")
    assert invoke("check", "dynamic.onnx", "--size", "h=7", "--size", "w=6").exit_code == FINDINGS
    assert invoke("check", "dynamic.onnx", "--size", "h").exit_code == USAGE
    assert invoke("check", "missing.onnx").exit_code == UNFIT


@pytest.mark.slow
def test_check_leaves_the_model_as_it_is():
    """Neither sizes nor repairs show up in the model that was checked."""
    model = decomposed.export(decomposed.RoundTrip(2, True, 2), torch.zeros(1, 2, 5, 4), (0, 2, 3))
    before = model.SerializeToString()
    lint(model, sizes={"d2": 5})
    assert model.SerializeToString() == before
