"""`unpool report`: what it finds out about a model, and what it refuses."""

import base64
import re
from io import BytesIO

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser
from PIL import Image

import unpool
from tests.support import models
from tests.support.command import fails, invoke
from unpool.cli.errors import OK, UNFIT, USAGE
from unpool.errors import UnpoolError
from unpool.graph.random_inputs import random_feed
from unpool.onnxruntime import InferenceSession
from unpool.operators.semantics import Semantics
from unpool.runtime.measure.bench import ModelTimes, NodeTime
from unpool.runtime.measure.timing import Timing
from unpool.runtime.report import report as reporting
from unpool.runtime.report.accuracy import check_accuracy, evaluate
from unpool.runtime.report.feature_maps import CELL, MARK
from unpool.runtime.report.report import ReportOptions
from unpool.runtime.trace import trace

QUICK = ReportOptions(effort=None, accuracy=False)

ROUND_TRIP = f"""round_trip (float[1, 1, 4, 4] x) => (float[1, 1, 4, 4] z) {{
    y, i = MaxPool <{models.POOL}> (x)
    z = MaxUnpool <{models.POOL}> (y, i)
}}"""
X = np.float32([[[[1, 9, 2, 3], [4, 5, 6, 7], [0, 0, 8, 1], [0, 2, 3, 4]]]])
CHOSEN = {(0, 1), (1, 3), (3, 1), (2, 2)}


def pixels(uri):
    """The picture in a data URI, as RGB."""
    return np.asarray(Image.open(BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("RGB"))


def dotted(uri, shape):
    """The elements of a close-up that have a dot."""
    middles = pixels(uri)[CELL // 2 :: CELL, CELL // 2 :: CELL]
    assert middles.shape[:2] == shape
    return {(int(row), int(column)) for row, column in np.argwhere((middles == MARK).all(axis=-1))}


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("size", "stride", "begin"), [((303, 61), 2, 0), ((61, 303), 3, 1), ((20, 19), 2, 1)])
def test_close_ups_show_the_same_windows(size, stride, begin, seed):
    """The close-up of the small side begins and ends with the same windows as that of the large side."""
    window = f"kernel_shape = [3, 3], strides = {[stride] * 2}, pads = {[begin] * 4}"
    model = models.model(
        f"""g (float[1, 1, {size[0]}, {size[1]}] x) => (float[a, b, c, d] z) {{
            y, i = MaxPool <{window}> (x)
            s = Shape (x)
            z = MaxUnpool <{window}> (y, i, s)
        }}"""
    )
    pool, unpooling = unpool.report(model, {"x": models.random(1, 1, *size, seed=seed)}, options=QUICK).maps
    for small, large in ((pool.after, pool.before), (unpooling.before, unpooling.after)):
        pairs = zip(small.area.begin, small.area.size, large.area.begin, large.area.size, small.shape[2:], strict=True)
        for first, count, start, length, windows in pairs:
            assert start == max(0, first * stride - begin)
            assert first + count == min((start + length - 1 + begin) // stride + 1, windows)


def test_chosen_positions_are_marked():
    """Both pictures of the large side have dots where the maxima are, those of the small side have none."""
    pool, unpooling = unpool.report(models.model(ROUND_TRIP), {"x": X}, options=QUICK).maps
    for small, large in ((pool.after, pool.before), (unpooling.before, unpooling.after)):
        assert dotted(large.close_up_uri, (4, 4)) == CHOSEN
        assert dotted(small.close_up_uri, (2, 2)) == set()
        assert (large.mark_count, small.mark_count) == (4, None)
    assert (pool.before.low, pool.before.high, pool.after.low) == (0, 9, 2)


@pytest.mark.parametrize("shape", ["1, 2, 6", "1, 2, 4, 6, 6"])
def test_lines_and_volumes_are_drawn(shape):
    """A line is one row, a volume the slice in its middle, with those of the maxima that are in the slice."""
    spatial = len(shape.split(",")) - 2
    model = models.model(
        f"""g (float[{shape}] x) => (float[{shape}] z) {{
            y, i = MaxPool <kernel_shape = {[2] * spatial}, strides = {[2] * spatial}> (x)
            z = MaxUnpool <kernel_shape = {[2] * spatial}, strides = {[2] * spatial}> (y, i)
        }}"""
    )
    x = models.random(*map(int, shape.split(",")))
    pool, unpooling = unpool.report(model, {"x": x}, options=QUICK).maps
    (z,) = unpool.InferenceSession(model).run(None, {"x": x})
    plane = z[0, pool.channel][pool.depth] if spatial == 3 else z[0, pool.channel][None]
    assert pool.depth == ((2,) if spatial == 3 else ())
    assert pool.before.mark_count == unpooling.after.mark_count == np.count_nonzero(plane)
    assert dotted(unpooling.after.close_up_uri, plane.shape) == set(zip(*map(list, np.nonzero(plane)), strict=True))


def test_pools_of_onnxruntime_are_drawn_too():
    """A plain MaxPool that the session leaves to onnxruntime is drawn as those of unpool are."""
    model = models.model(
        """g (float[1, 16, 4, 4] x) => (float[1, 16, h, w] y) {
            a = Conv (x, w) b = MaxPool <kernel_shape = [2, 2]> (a) y = Neg (b)
        }""",
        w=np.eye(16, dtype=np.float32).reshape(16, 16, 1, 1),
    )
    done = unpool.report(model, {"x": np.repeat(X, 16, axis=1)}, options=QUICK)
    assert {one.runner for one in done.nodes} == {"onnxruntime"}
    (pair,) = done.maps
    assert (0, 1) in dotted(pair.before.close_up_uri, (4, 4))
    assert [one.kernel for one in done.windows.values()] == [2]


def test_accuracy_is_that_of_every_node_alone():
    """Pools are exact, sums are off by what float32 rounds, in onnxruntime too."""
    model = models.segnet()
    nodes = unpool.report(model, options=ReportOptions(effort=None)).accuracy
    by_operator = {one.node.partition("->")[0]: one for one in nodes}
    for name in ("MaxPool", "MaxUnpool"):
        assert by_operator[name].float64.count == by_operator[name].onnxruntime.count == 0
        assert by_operator[name].float64.size > 0
    grown = by_operator["ConvTranspose"]
    assert grown.node == "ConvTranspose->d2"
    assert 0 < grown.float64.error < 1e-6
    assert grown.onnxruntime.error < 1e-6
    assert all(one.float64_failure == "" for one in nodes)
    assert [one.onnxruntime is None for one in nodes] == [one.runner == "onnxruntime" for one in nodes]


@pytest.mark.parametrize("activation", ["LeakyRelu <alpha = 0.3> (c)", "Clip (c, low, high)"])
def test_fused_activation_is_evaluated_too(activation):
    """An activation with numbers of its own, which became part of a node, is part of what the node is held against."""
    model = models.model(
        f"g (float[1, 4, 5, 6] x) => (float[1, 3, h, w] y) {{ c = ConvTranspose (x, w) a = {activation} y = Neg (a) }}",
        w=models.random(4, 3, 3, 3), low=np.float32(-1), high=np.float32(2),
    )  # fmt: skip
    done = unpool.report(model, {"x": models.random(1, 4, 5, 6)}, options=ReportOptions(effort=None))
    grown = done.accuracy[0]
    assert (grown.node, grown.float64_failure, grown.onnxruntime_failure) == ("ConvTranspose->a", "", "")
    assert max(grown.float64.error, grown.onnxruntime.error) < 1e-6


def test_an_error_is_told():
    """One wrong element of a node is counted, and measured against the largest value."""
    pool, _ = trace(InferenceSession(models.model(ROUND_TRIP)), {"x": X})
    wrong = pool.outputs["y"].copy()
    wrong[0, 0, 0, 1] = 6.1
    found = check_accuracy(pool._replace(outputs={**pool.outputs, "y": wrong}), Semantics(), 1)
    assert (found.float64.count, found.float64.size) == (1, 8)
    assert found.float64.error == pytest.approx(0.1)
    assert found.onnxruntime == found.float64


@pytest.mark.parametrize(
    "words",
    [
        "pads = [1, 0, 2, 1], strides = [2, 1]",
        'auto_pad = "SAME_LOWER", strides = [2, 3], group = 2',
        'auto_pad = "SAME_UPPER", strides = [1, 3]',
        'auto_pad = "VALID", dilations = [1, 2]',
    ],
)
def test_conv_in_double_is_that_of_onnxruntime(words):
    """The Conv by which accuracy is judged gives what onnxruntime gives in float32, to its last digits."""
    group = 2 if "group" in words else 1
    w, b = models.random(4, 4 // group, 3, 2), models.random(4)
    model = models.model(
        f"g (float[2, 4, 9, 8] x) => (float[2, 4, h, w] y) {{ y = Conv <{words}> (x, w, b) }}", w=w, b=b
    )
    x = models.random(2, 4, 9, 8)
    (want,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    (got,) = evaluate(model, {"x": x}, Semantics())
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


def test_memory_counts_what_is_alive():
    """A value lives from the node that makes it to the last one that reads it; outputs live to the end."""
    memory = unpool.report(models.model(ROUND_TRIP), {"x": X}, options=QUICK).memory
    assert [(one.name, one.bytes, one.producer, one.last_reader) for one in memory.values] == [
        ("x", 64, -1, 0), ("y", 16, 0, 1), ("i", 32, 0, 1), ("z", 64, 1, 1),
    ]  # fmt: skip
    assert memory.live_bytes == (64 + 16 + 32, 16 + 32 + 64)
    assert memory.peak_bytes > 64


def test_windows_are_those_of_the_model():
    """Every axis with a window of its own is offered, sizes included; a Conv that became a ConvTranspose is not."""
    windows = unpool.report(models.segnet(), options=QUICK).windows
    assert [(one.operator, one.size, one.kernel, one.stride) for one in windows.values()] == [
        ("MaxPool", 12, 2, 2), ("MaxPool", 10, 2, 2), ("MaxPool", 6, 2, 1), ("MaxPool", 5, 2, 1),
        ("MaxUnpool", 5, 2, 1), ("MaxUnpool", 4, 2, 1), ("ConvTranspose", 6, 3, 1), ("ConvTranspose", 5, 3, 1),
        ("MaxUnpool", 6, 2, 2), ("MaxUnpool", 5, 2, 2),
    ]  # fmt: skip


def test_times_stand_beside_the_nodes(monkeypatch):
    """Every node has its time and its share, and onnxruntime's where it has one; a refusal is told."""
    asked = []

    def bench(path, feed, effort, **options):
        asked.append((onnx.load(path).graph.name, options["threads"]))
        timing = Timing(0.004, 0.003, 0.005, 0.006, 0.1, 5)
        nodes = NodeTime("MaxPool->y", "unpool", 0.001, 0.25, 0.002), NodeTime("MaxUnpool->z", "unpool", 0.003, 0.004)
        return ModelTimes(timing, None, "it has no MaxUnpool", None, 1, nodes)

    monkeypatch.setattr(reporting, "bench", bench)
    done = unpool.report(models.model(ROUND_TRIP), {"x": X}, threads=1, options=ReportOptions(accuracy=False))
    assert asked == [("round_trip", 1)]
    cells = [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<td.*?</td>", done.html)]
    assert cells[3:6] == ["1.000", "25 %", "2.000"]
    assert cells[9:12] == ["3.000", "&lt;1 %", "–"]
    assert str(done).splitlines()[1] == "time: 4.000 ms (onnxruntime cannot run it: it has no MaxUnpool)"
    assert done.html.index("<dt>time</dt>") < done.html.index("<dt>check</dt>") < done.html.index("<dt>nodes</dt>")


def test_page_is_one_small_file():
    """The page names no other file, and a model of five pools of large maps stays below 2 MB."""
    pools = "".join(f"y{n}, i{n} = MaxPool <{models.POOL}> (y{n - 1}) " for n in range(1, 6))
    model = models.model(f"g (float[1, 1, 512, 512] y0) => (float[1, 1, h, w] y5, int64[1, 1, h, w] i1) {{ {pools} }}")
    html = unpool.report(model, options=QUICK).html
    assert html.count("<img") == 20
    assert len(html) < 2e6
    sources = re.findall(r'(?:src|href)="([^"]{1,40})', html)
    assert {source.partition(",")[0] for source in sources if not source.startswith("#")} == {"data:image/png;base64"}
    assert re.findall(r"https?://[^\"']*", html) == ["http://www.w3.org/2000/svg"]


def test_findings_are_on_the_page():
    """What `unpool.check` finds is told, with the command that repairs it."""
    model = models.plain_pools(attributes='kernel_shape = [3, 3], auto_pad = "VALID", ceil_mode = 1, strides = [2, 2]')
    (finding, *_) = unpool.check(model)
    done = unpool.report(model, options=QUICK)
    assert done.findings == unpool.check(model)
    assert finding.repair in done.html


@pytest.fixture
def here(here):
    """An empty folder with a model and an input, as the current one."""
    onnx.save(models.model(ROUND_TRIP), "m.onnx")
    np.save("x.npy", X)
    (here / "broken.onnx").write_bytes(b"no model")
    return here


def test_command_writes_the_page(here):
    """The command says in short what the page says, and where it is."""
    done = invoke("report", "m.onnx", "-i", "x.npy", "-o", "r.html", "--iterations", "0", "--no-accuracy")
    assert done.exit_code == OK, done.output
    assert done.stdout.splitlines()[0] == "m.onnx: opset ai.onnx 17"
    assert done.stdout.splitlines()[-1] == "r.html: written"
    page = (here / "r.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "x: float32 1×1×4×4" in page


@pytest.mark.parametrize(
    ("code", "words", "says"),
    [
        (UNFIT, ["broken.onnx", "-o", "r.html"], "expected an ONNX model"),
        (UNFIT, ["none.onnx", "-o", "r.html"], "no such file"),
        (UNFIT, ["m.onnx", "-i", "y.npy", "-o", "r.html"], "y.npy"),
        (UNFIT, ["m.onnx", "-o", "none/r.html"], "no such folder"),
        (USAGE, ["m.onnx", "-o", "r.png"], "expected a file for a page"),
        (USAGE, ["m.onnx", "-o", "."], "expected a file for a page"),
        (USAGE, ["m.onnx", "-o", "-"], "not to standard output"),
    ],
)
def test_command_refuses_before_it_writes(here, code, words, says):
    """One line says what is wrong, and no file appears."""
    fails(code, "report", *words, "--iterations", "0", says=says)


def test_missing_input_is_told():
    """An input that is not fed is named, as a session names it."""
    with pytest.raises(UnpoolError, match="'x'"):
        unpool.report(models.model(ROUND_TRIP), {}, options=QUICK)


def test_model_without_our_operators_has_a_report():
    """A model that onnxruntime runs as a whole has a plan and values as any other."""
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2, n] x) => (float[2, n] y) { y = Relu (x) }'
    )
    feed = random_feed(unpool.InferenceSession(model).get_inputs(), {"n": 3})
    done = unpool.report(model, feed, options=ReportOptions(None))
    assert [one.runner for one in done.accuracy] == ["onnxruntime"]
    assert done.memory.live_bytes == (48,)
    assert "no pooling or unpooling that can be drawn" in done.html


@pytest.mark.parametrize("lengths", [(2, 3), (2, 2)])
def test_sequence_inputs_have_a_report(lengths):
    """A sequence is named by its number of tensors, and its bytes are those of all of them."""
    model = models.model(
        """g (seq(float[k]) s, float[1, 1, 4, 4] x) => (float[n] t, float[1, 1, 2, 2] y) {
            t = ConcatFromSequence <axis = 0> (s) y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
        }"""
    )
    feed = {"s": [models.random(length) for length in lengths], "x": X}
    done = unpool.report(model, feed, options=ReportOptions(effort=None))

    assert done.inputs == {"s": "sequence of 2", "x": "float32 1×1×4×4"}
    sequence = done.memory.values[0]
    assert (sequence.type, sequence.shape, sequence.bytes) == ("sequence of 2", None, 4 * sum(lengths))
    assert "sequence of 2" in done.html


def test_a_node_that_onnxruntime_refuses_is_reported():
    """A Conv in float64 runs in onnx's evaluator, alone as in the session, and the nodes behind it where they run."""
    model = models.model(
        """g (double[1, 4, 5, 6] x) => (double[1, 3, h, w] y) {
            n = Conv (x, k) c = ConvTranspose (n, w) y = Relu (c)
        }""",
        k=models.random(4, 4, 1, 1, dtype=np.float64), w=models.random(4, 3, 3, 3, dtype=np.float64),
    )  # fmt: skip
    done = unpool.report(model, options=ReportOptions(effort=None))
    assert [node.runner for node in done.nodes[:2]] == [node.runner for node in done.accuracy[:2]]
    assert [node.runner for node in done.nodes[:2]] == ["reference", "unpool"]
    assert {node.float64_failure for node in done.accuracy} == {""}
