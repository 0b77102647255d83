"""Every rule, over all values of its attributes: a tiled run gives the same bits, or the node is refused."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

import unpool
from tests.support import models
from tools.campaigns import tiles as campaign
from tools.campaigns.tile_cases import GENERATORS, NEWEST, case
from unpool import tiles
from unpool.operators.contract import OPERATORS
from unpool.runtime.tiles.rules.table import ATTRIBUTES, ROUNDED, RULES
from unpool.runtime.tiles.rules.windows import plane_indices

MEASURES = {"Shape", "Size"}
"""Operators that are tiled without a rule: they read sizes alone."""

REFUSED = {
    "BatchNormalization": {"spatial"},
    "DequantizeLinear": {"block_size"},
    "QuantizeLinear": {"block_size"},
}
"""By operator, attributes of opsets 7 to NEWEST that no rule describes, so that a node with them is refused."""

PLAIN = "g (float[n, c, h, w] x) => (float y)"
BRANCHES = ("then_branch", "else_branch")
FUSED = ("activation", "activation_params")
"""Attributes of our operators in com.ms.internal.nhwc alone."""

HEAD = "g (float[1, 1, h, w] x) => (float[n, c, a, b] y)"


@pytest.mark.sample(5)
@pytest.mark.parametrize("operator", sorted(GENERATORS))
def test_tiles_of_every_operator_are_exact_or_refused(operator):
    """A few models of each operator, in tiles of three sizes, give what the image gives whole, or are refused."""
    tally = campaign.campaign(operator, 3, seed=20)

    assert tally.wrong == []
    assert tally.kinds["trials"] >= 3


def test_every_rule_has_a_campaign():
    """An operator gets a rule together with a generator of cases, and has none without."""
    assert set(GENERATORS) == set(RULES) | MEASURES
    assert set(ATTRIBUTES) | ROUNDED <= set(RULES)


def test_every_attribute_of_a_rule_is_drawn():
    """What a rule says of an attribute is tried: its generator gives the attribute, and gives no other."""
    for operator in RULES:
        expected, seen = {*ATTRIBUTES.get(operator, ()), *(FUSED if operator in OPERATORS else ())}, set()
        for seed in range(300):
            nodes = case(operator, seed).model.graph.node
            seen |= {one.name for node in nodes if node.op_type == operator for one in node.attribute}
            if seen == expected:
                break
        assert seen == expected, operator


VALUES_OF = {
    "allowzero": {0, 1},
    "antialias": {0, 1},
    "approximate": {b"none", b"tanh"},
    "auto_pad": {b"NOTSET", b"VALID", b"SAME_UPPER", b"SAME_LOWER"},
    "ceil_mode": {0, 1},
    "coordinate_transformation_mode": {
        b"align_corners", b"asymmetric", b"half_pixel", b"half_pixel_symmetric", b"pytorch_half_pixel",
        b"tf_crop_and_resize", b"tf_half_pixel_for_nn",
    },
    "count_include_pad": {0, 1},
    "detect_negative": {0, 1},
    "detect_positive": {0, 1},
    "direction": {b"LEFT", b"RIGHT"},
    "exclude_outside": {0, 1},
    "exclusive": {0, 1},
    "fmod": {0, 1},
    "keep_aspect_ratio_policy": {b"stretch", b"not_larger", b"not_smaller"},
    "keepdims": {0, 1},
    "largest": {0, 1},
    "nearest_mode": {b"ceil", b"floor", b"round_prefer_ceil", b"round_prefer_floor"},
    "noop_with_empty_axes": {0, 1},
    "reverse": {0, 1},
    "round_mode": {b"up", b"down", b"nearest"},
    "saturate": {0, 1},
    "select_last_index": {0, 1},
    "sorted": {0, 1},
    "storage_order": {0, 1},
    "training_mode": {0, 1},
}  # fmt: skip
"""By attribute, all its values, where these can be counted."""
MODES = {
    "DepthToSpace": {b"DCR", b"CRD"},
    "Pad": {b"constant", b"edge", b"reflect", b"wrap"},
    "Resize": {b"nearest", b"linear", b"cubic"},
    "Upsample": {b"nearest", b"linear"},
}


def test_every_value_of_an_attribute_is_drawn():
    """Of an attribute that has a few values, none is left out."""
    for operator in RULES:
        values = {**VALUES_OF, "mode": MODES.get(operator)}
        expected = {(name, value) for name in ATTRIBUTES.get(operator, ()) for value in values.get(name) or ()}
        for seed in range(1000):
            if not expected:
                break
            nodes = [node for node in case(operator, seed).model.graph.node if node.op_type == operator]
            expected -= {
                (one.name, value)
                for node in nodes
                for one in node.attribute
                if isinstance(value := onnx.helper.get_attribute_value(one), int | bytes)
            }
        assert not expected, operator


def test_the_documentation_names_what_rounds_otherwise():
    """Whoever compares tiles with the whole finds why the last bits of these operators differ."""
    text = (Path(__file__).parents[3] / "docs" / "tiling.md").read_text(encoding="utf-8")
    named = re.search(r"differences in the last\s+bits: (.*?)\.\n", text, re.DOTALL)

    assert named
    assert set(re.findall(r"\b[A-Z]\w+", named[1])) == ROUNDED


def test_every_rule_says_the_formula_that_proves_it():
    """Nobody can check a rule that does not say what an element is made of."""
    for rule in {*RULES.values(), plane_indices}:
        assert re.search(r"\S = \S", rule.__doc__ or ""), rule.__name__


def test_every_attribute_of_the_standard_is_described_or_refused():
    """No operator that is tiled has an attribute in the standard that nobody looked at."""
    for operator in RULES:
        schemas = [
            one
            for one in onnx.defs.get_all_schemas_with_history()
            if (one.domain, one.name) == ("", operator) and one.since_version <= NEWEST
        ]
        later = [one for one in schemas if one.since_version >= 7] + [max(schemas, key=_before_seven)]
        standard = {name for one in later for name in one.attributes}
        assert standard == set(ATTRIBUTES.get(operator, ())) | REFUSED.get(operator, set()), operator


def _before_seven(schema):
    """Puts the version first that opset 7 has."""
    return schema.since_version if schema.since_version <= 7 else 0


def run_both(body, sizes, tile, *, opset=18, layout="NCHW", **constants):
    """What a model gives in tiles, and whole."""
    session = unpool.InferenceSession(models.model(f"{HEAD} {{ {body} }}", opset=opset, **constants), threads=1)
    x = np.random.default_rng(0).standard_normal((1, 1, *sizes)).astype(np.float32)
    return tiles.run(session, {"x": x}, tile, layout=layout)["y"], session.run(None, {"x": x})[0]


def refused(text, shape, tile, says, *, feed=None, layout="NCHW", compat="spec", **constants):
    """The model is refused with these words, for an input of ones."""
    session = unpool.InferenceSession(models.model(text, opset=18, **constants), threads=1, compat=compat)
    with pytest.raises(unpool.UnsupportedError, match=says):
        tiles.run(session, {"x": np.ones(shape, np.float32), **(feed or {})}, tile, layout=layout)


def resize(mode, placing, factors, **words):
    """The text of a Resize, and its scales."""
    more = "".join(f", {name} = {value}" for name, value in words.items())
    body = f'y = Resize <mode = "{mode}", coordinate_transformation_mode = "{placing}"{more}> (x, , factors)'
    return body, np.float32([1, 1, *factors])


TAKEN = {
    "one row is left to the last tile": ("linear", "pytorch_half_pixel", (0.5, 0.5), (66, 66), (32, 32)),
    "tiles of one row": ("linear", "pytorch_half_pixel", (0.25, 0.25), (64, 50), (4, 4)),
    "a result of a single row": ("cubic", "pytorch_half_pixel", (0.5, 0.25), (3, 40), (2, 4)),
    "pixels between two": ("nearest", "pytorch_half_pixel", (0.25, 0.5), (33, 21), (4, 2)),
    "sizes that are whole": ("linear", "half_pixel_symmetric", (0.5, 2), (20, 14), (4, 6)),
    "thirds, at whole places": ("linear", "half_pixel", (1 / 3, 1 / 3), (61, 31), (9, 3)),
    "a factor of three": ("nearest", "half_pixel", (3, 3), (21, 13), (5, 4)),
    "a factor of four": ("cubic", "half_pixel", (4, 4), (21, 13), (5, 4)),
}


@pytest.mark.parametrize("which", TAKEN)
def test_resize_in_tiles_gives_the_same_bits(which):
    """What places an element by its position alone, and is not rounded by float32, is exact in tiles."""
    mode, placing, factors, sizes, tile = TAKEN[which]
    body, scales = resize(mode, placing, factors)
    made, whole = run_both(body, sizes, tile, factors=scales)

    np.testing.assert_array_equal(made, whole)


@pytest.mark.parametrize(("mode", "opset"), [("linear", 9), ("linear", 18), ("cubic", 18)])
def test_an_axis_of_the_same_size_is_interpolated_with_the_element_behind(mode, opset):
    """A weight of 0 makes NaN of a NaN, and two equal weights at an end round otherwise than a weight of 1."""
    operator, inputs = ("Upsample", "x, factors") if opset < 10 else ("Resize", "x, , factors")
    body = f'{HEAD} {{ y = {operator} <mode = "{mode}"> ({inputs}) }}'
    model = models.model(body, opset=opset, factors=np.float32([1, 1, 1, 2]))
    session = unpool.InferenceSession(model, threads=1)
    x = np.random.default_rng(0).standard_normal((1, 1, 9, 8)).astype(np.float32)
    x[0, 0, 5, 3] = np.nan

    made = tiles.run(session, {"x": x}, (5, 8))["y"]

    np.testing.assert_array_equal(made, session.run(None, {"x": x})[0])


NOT_TAKEN = {
    "almost a half": ("linear", "half_pixel", (0.5001, 1), {}, "the scale 0.500100017, which is no whole factor"),
    "almost a third": ("nearest", "asymmetric", (0.3334, 1), {}, "the scale 0.333400011, which is no whole factor"),
    "almost two": ("linear", "half_pixel", (2.0001, 1), {}, "float32 of n or of 1 / n is"),
    "weights of thirds": ("linear", "half_pixel", (3, 1), {}, "a factor that is a power of two is not rounded"),
    "sizes that are not whole": ("nearest", "half_pixel_symmetric", (0.5, 1), {}, "by which it shifts them"),
    "thirds as sums of float64": (
        "nearest",
        "half_pixel_symmetric",
        (1 / 3, 1 / 3),
        {"nearest_mode": '"floor"'},
        "places 20 elements at multiples of 3, which float32 rounds",
    ),
    "corners": ("linear", "align_corners", (2, 2), {}, "coordinate_transformation_mode align_corners, which places"),
    "antialias": ("linear", "half_pixel", (0.5, 0.5), {"antialias": 1}, "antialias 0 is exact"),
    "rounded sizes": ("nearest", "asymmetric", (1 / 41, 1), {}, "as float32 rounds 1/41; sizes are not rounded"),
}


@pytest.mark.parametrize("which", NOT_TAKEN)
def test_resize_that_depends_on_the_size_is_refused(which):
    """The error names the attribute or the number, and what could be tiled in its place."""
    mode, placing, factors, words, says = NOT_TAKEN[which]
    body, scales = resize(mode, placing, factors, **words)
    sizes = {"rounded sizes": (82, 6), "thirds as sums of float64": (60, 30)}.get(which, (61, 31))

    message = f"Resize node 'Resize->y' cannot be tiled exactly: it .*{re.escape(says)}"
    with pytest.raises(unpool.UnsupportedError, match=message):
        run_both(body, sizes, (12, 12), factors=scales)


OF_SIZES = {
    "the axis of CumSum": "a = Squeeze (r)  y = CumSum (x, a)",
    "axes of ReduceSum": "y = ReduceSum <keepdims = 0> (x, r)",
    "axes of Unsqueeze": "y = Unsqueeze (x, r)",
    "where channels are cut": "e = Add (r, one)  y = Slice (x, r, e, one)",
    "how channels are padded": "q = Sub (two, r)  p = Concat <axis = 0> (r, q)  y = Pad (x, p, , one)",
    "the channel that is taken": "y = Gather <axis = 1> (x, r)",
}


@pytest.mark.parametrize("which", OF_SIZES)
def test_what_a_size_of_the_image_chooses_is_refused(which):
    """Shapes and links of a tile are those of the image, and only what the remainder of its height chose differs."""
    body = f"s = Shape <start = 2, end = 3> (x)  r = Mod (s, two)  {OF_SIZES[which]}"
    outer = 1 if "Unsqueeze" in body else 2
    numbers = {"one": np.int64([1]), "two": np.int64([2])}
    says = "computes with the size of the image"
    refused(f"{PLAIN} {{ {body} }}", (outer, outer, 13, 11), (6, 11), says, **numbers)


NUMBERS = {name: np.int64([value]) for name, value in {"zero": 0, "one": 1, "two": 2, "nine": 9}.items()}
NO_ELEMENTS = {
    "a quotient of sizes whose divisor is 0 in a tile of an odd height": (
        """s = Shape (x)  h = Shape <start = 2, end = 3> (x)  r = Mod (h, two)  d = Sub (one, r)
        f = Concat <axis = 0> (one, one, d, one)  t = Div (s, f)
        y = Resize <coordinate_transformation_mode = "half_pixel_symmetric", nearest_mode = "ceil"> (x, , , t)""",
        (8, 8), (1, 8), r"makes .* an axis without elements has no factor",
    ),
    "a remainder of a size, which is a step in the image and 0 in a tile": (
        "h = Shape <start = 2, end = 3> (x)  r = Mod (h, two)  y = Slice (x, zero, nine, two, r)",
        (9, 8), (4, 8), r"Slice node .* cannot run on this size",
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", NO_ELEMENTS)
def test_sizes_and_steps_of_no_elements_are_refused(which):
    """What the image has, a tile may lack."""
    body, sizes, tile, says = NO_ELEMENTS[which]
    used = {name: value for name, value in NUMBERS.items() if name in body}
    refused(f"{HEAD} {{ {body} }}", (1, 1, *sizes), tile, says, **used)


def test_random_numbers_in_a_body_are_refused():
    """No run gives what another gave, so tiles have nothing to agree with."""
    body = "{ r = RandomNormal <shape = [1, 1, 1, 1]> () }"
    branches = ", ".join(f"{name} = b () => (float[1, 1, 1, 1] r) {body}" for name in BRANCHES)
    text = f"{HEAD} {{ q = If <{branches}> (yes)  y = Add (x, q) }}"
    refused(text, (1, 1, 8, 8), (4, 4), r"If node .* computes random numbers", yes=np.bool_(True))


@pytest.mark.parametrize("shape", [(11, 4), (13, 1, 4), (1, 13, 11, 4)])
def test_a_scale_along_the_image_is_refused(shape):
    """LayerNormalization of channels takes scales that have numbers for positions, too."""
    text = "g (float[1, 13, 11, 4] x) => (float[1, 13, 11, 4] y) { y = LayerNormalization (x, scale) }"
    says, scale = r"'scale', which has 1[13] numbers along the image", np.ones(shape, np.float32)
    refused(text, (1, 13, 11, 4), (5, 5), says, layout="NHWC", scale=scale)


def test_a_tile_that_the_model_refuses_is_refused_with_the_reason():
    """A plane of a tile may be smaller than compat="ort" asks of an unpooling, whose error says so."""
    text = f"""{HEAD} {{
        p, i = MaxPool <kernel_shape = [3, 1]> (x)  s = Shape (x)
        y = MaxUnpool <kernel_shape = [1, 3]> (p, i, s) }}"""
    refused(text, (1, 1, 4, 7), (3, 6), r"not a part of .* elements: MaxUnpool-11 .*", compat="ort")


REFUSALS = {
    "a number made of a size": (
        "s = Shape <start = 2, end = 3> (x)  f = Cast <to = 1> (s)  v = Squeeze (f)  y = Pad (x, pads, v)",
        "computes with the size of the image",
    ),
    "chance": ("y = Dropout (x, half, yes)", "drops random elements"),
    "random numbers": (
        "r = RandomNormal <shape = [1, 1, 1, 1]> ()  y = Add (x, r)",
        "computes random numbers",
    ),
    "blocks": (
        "q = Cast <to = 2> (x)  y = DequantizeLinear <axis = 2, block_size = 4> (q, steps)",
        "has the attribute 'block_size'",
    ),
    "a norm over a row": ("y = LpNormalization (x)", "works on all positions of the image at once"),
    "scales along the image": (
        "q = QuantizeLinear <axis = 3> (x, along)  y = Cast <to = 1> (q)",
        "works on all positions of the image at once",
    ),
    "rows as channels": (
        "t = Transpose <perm = [0, 2, 1, 3]> (x)  l = LRN <size = 3> (t)  y = Transpose <perm = [0, 2, 1, 3]> (l)",
        "works on all positions of the image at once",
    ),
    "any order": ("y, i = TopK <axis = 1, sorted = 0> (x, one)", "sorted 0, which leaves the order open"),
}
VALUES = {
    "pads": np.int64([0, 0, 1, 1] * 2),
    "half": np.float32(0.5),
    "yes": np.bool_(True),
    "steps": np.ones((1, 1, 4, 16), np.float32),
    "along": np.ones(16, np.float32),
    "one": np.int64([1]),
}


@pytest.mark.parametrize("which", REFUSALS)
def test_what_no_tile_can_agree_on_is_refused(which):
    """The error names what the node does that depends on the whole image, or on nothing."""
    body, says = REFUSALS[which]
    used = {name: value for name, value in VALUES.items() if re.search(rf"\b{name}\b", body)}

    with pytest.raises(unpool.UnsupportedError, match=re.escape(says)):
        run_both(body, (16, 16), (8, 8), opset=21, **used)


def test_places_that_another_input_says_are_refused():
    """The tiles are cut before anybody knows the elements of other inputs."""
    text = "g (float[1, 1, h, w] x, int64[1] starts) => (float[1, 1, a, w] y) { y = Slice (x, starts, stops, axes) }"
    says = "takes sizes or axes, 'starts', that it computes from elements"
    ends = {"feed": {"starts": np.int64([1])}, "stops": np.int64([99]), "axes": np.int64([2])}
    refused(text, (1, 1, 8, 8), (4, 4), says, **ends)


def test_a_window_longer_than_the_image_is_refused():
    """A LpPool that fits nowhere has no element by the text, and one in onnxruntime, so tiles cannot agree."""
    text = f"{HEAD} {{ y = LpPool <kernel_shape = [3, 3], strides = [3, 3]> (x) }}"
    refused(text, (1, 1, 2, 2), (1, 1), "longer than the image")
