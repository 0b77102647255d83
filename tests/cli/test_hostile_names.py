"""Names with control characters, line breaks and bidirectional marks, and names of 20,000 letters, in every output."""

import json
import logging
import re
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import unpool
from tests.support.command import invoke
from unpool.cli import console
from unpool.cli.errors import FINDINGS, OK, UNFIT, UNSUPPORTED, guard
from unpool.display import MAX_LINE, display_line

EVIL = "\nerror: fake\x1b[2J\x07\x00\x9b\x85\u2028\u202e\u2066\ufeff"
LONG = "n" * 20_000
RAW = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""Characters that no output may hold; a line break ends a line."""

MODEL, OUTPUT = "m\x1b[2J\u202e.onnx", "o\x1b[2J\u202e"


def name(word, is_long):
    return f"{word}{LONG if is_long else EVIL}"


def hostile(is_long):
    """A pool under SAME with dilation, an unpooling of indices inside planes, and a Relu; every name is hostile."""
    x, y, pooled, indices, plane, size, grown = (
        name(word, is_long) for word in ("x", "y", "pooled", "indices", "plane", "size", "grown")
    )
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        helper.make_node("MaxPool", [x], [pooled, indices], name("pool", is_long), **window),
        helper.make_node("Mod", [indices, size], [plane], name("mod", is_long)),
        helper.make_node("MaxUnpool", [pooled, plane], [grown], name("unpool", is_long), **window),
        helper.make_node(
            "MaxPool", [grown], [y], name("same", is_long), auto_pad="SAME_UPPER", ceil_mode=1, kernel_shape=[3, 3]
        ),
    ]
    made = helper.make_model(
        helper.make_graph(
            nodes,
            name("graph", is_long),
            [helper.make_tensor_value_info(x, TensorProto.FLOAT, [name("batch", is_long), 2, 4, 4])],
            [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)],
            [helper.make_tensor(size, TensorProto.INT64, [1], [16])],
            doc_string=name("words", is_long),
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
        producer_name=name("producer", is_long),
    )
    helper.set_model_props(made, {name("key", is_long): name("value", is_long), "classes": "a,b"})
    return made


COMMANDS = {
    "inspect": (OK,),
    "check": (FINDINGS,),
    "compare": (UNSUPPORTED, "--against", "onnxruntime,openvino"),
    "report": (OK, "-o", f"{OUTPUT}.html", "--iterations", "0", "{size}"),
    "bench": (OK, "--iterations", "1", "{size}"),
    "fix": (OK, "-o", f"{OUTPUT}.onnx"),
    "canonicalise": (OK, "-o", f"{OUTPUT}.onnx"),
    "upgrade": (OK, "--opset", "22", "-o", f"{OUTPUT}.onnx"),
    "lower": (OK, "--for", "openvino", "-o", f"{OUTPUT}.onnx"),
    "run": (OK, "-i", "x.npy", "-o", f"{OUTPUT}.npz"),
    "run elsewhere": (UNFIT, "-i", "a\nb.npy", "-o", f"{OUTPUT}.npy"),
    "inspect size": (UNFIT, "--size", f"{EVIL[1:4]}\nerror: fake=3"),
}
"""Exit code and options, by command."""


@pytest.fixture(params=[False, True], ids=["controls", "long"])
def is_long(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(hostile(request.param), MODEL)
    np.save("x.npy", np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4))
    return request.param


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("is_long", "command"),
    [(is_long, command) for is_long in (False, True) for command in COMMANDS if not is_long or command != "bench"],
    indirect=["is_long"],
)
def test_no_command_prints_names_as_they_are(is_long, command):
    """No raw control or bidirectional character, no line that a name begins, and no line of thousands of letters."""
    batch = name("batch", is_long)
    code, *options = COMMANDS[command]
    words = [f"--size={batch}=3" if word == "{size}" else word for word in options]
    done = invoke(command.split()[0], MODEL, *words)
    assert done.exit_code == code, done.output
    lines = (done.stdout + done.stderr).split("\n")
    assert lines[:-1]
    assert not [line for line in lines if RAW.search(line)]
    assert not [line for line in lines if line.startswith("error: fake")]
    assert max(map(len, lines)) <= MAX_LINE + len("warning: ")
    assert len(done.stdout + done.stderr) < 20_000
    if command == "report":
        page = Path(f"{OUTPUT}.html").read_text()
        body = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", page, flags=re.S)
        assert not RAW.search(body)
        assert len(body) < 200_000


@pytest.mark.parametrize("command", ["inspect", "check", "compare"])
def test_json_has_whole_names(is_long, command):
    """JSON is for programs: every name is in it, letter by letter."""
    done = invoke(command, MODEL, "--json")
    assert not RAW.search(done.stdout)
    found = json.dumps(json.loads(done.stdout), ensure_ascii=False)
    assert json.dumps(name("unpool", is_long), ensure_ascii=False)[1:-1] in found


def test_records_of_the_library_print_one_line_for_each_entry(is_long):
    """`print` of what a function returns escapes names as the command does."""
    model = hostile(is_long)
    fixed = unpool.fix(model)
    for done in (unpool.check(model), fixed, unpool.lower(fixed.model, "openvino"), unpool.plan(model)):
        lines = str(done).split("\n")
        assert not [line for line in lines if RAW.search(line) or line.startswith("error: fake")]
        assert max(map(len, lines)) <= MAX_LINE


def test_logs_and_warnings_are_single_lines(capsys):
    """Names in log records and warnings begin no line."""
    console.set_up_log(verbose=True)
    logging.getLogger("unpool").info("node %s", EVIL)
    with guard(quiet=True):
        warnings.simplefilter("always")
        warnings.warn(f"node {EVIL}", stacklevel=1)
    info, warning = capsys.readouterr().err.splitlines()
    assert info.startswith(r"info: node \nerror: fake\x1b[2J")
    assert warning.startswith("warning: node error: fake")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\r\x85c", r"a\nb\r\x85c"),
        ("\u202ea\u2066", r"\u202ea\u2066"),
        ("é − ∞ 名", "é − ∞ 名"),
        ("a/" + "b" * 201, "a/" + "b" * 99 + "..." + "b" * 98),
        ("b" * 200, "b" * 200),
    ],
)
def test_display_line(text, shown):
    """Letters of all languages stay; what moves the cursor or the order of letters is escaped; long words are cut."""
    assert display_line(text) == shown
    assert display_line(shown) == shown
