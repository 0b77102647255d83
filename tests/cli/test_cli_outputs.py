"""What `unpool run` makes of outputs of every kind and name, and of inputs of which some are broken."""

import errno
import json
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image

import unpool
from tests.support.command import copy_model, fails, invoke, picture
from tests.support.disk_faults import contents, failing, raising
from unpool.cli.errors import FINDINGS, OK, UNFIT, UNSUPPORTED, USAGE
from unpool.cli.outputs import LONGEST, safe_names, writable

X = np.array([1, -2, 3], np.float32)
VALUE = helper.make_tensor_value_info
HOSTILE = [
    "../../evil", "/etc/passwd", "..", ".", "", "file", "allow_pickle", "a\0b", "C:\\x", "nul", "COM1.txt", "y", "Y",
]  # fmt: skip


def saved(nodes, outputs, inputs=(("x", TensorProto.FLOAT, [3]),)):
    graph = helper.make_graph(nodes, "graph", [VALUE(*one) for one in inputs], outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "model.onnx")
    np.save("x.npy", X)
    return "model.onnx"


def sequence(name="s", **more):
    outputs = [helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None)]
    nodes = [helper.make_node("SplitToSequence", ["x"], [name], keepdims=1)]
    for other in more.values():
        nodes.append(helper.make_node("Relu", ["x"], [other]))
        outputs.append(VALUE(other, TensorProto.FLOAT, [3]))
    return saved(nodes, outputs)


def named(names):
    return saved(
        [helper.make_node("Relu", ["x"], [name]) for name in names],
        [VALUE(name, TensorProto.FLOAT, [3]) for name in names],
    )


def test_sequences_have_a_member_per_element(here):
    """A sequence goes into .npz element by element, beside a tensor that has the name of one."""
    done = invoke("run", sequence("s", other="s.1"), "-i", "x.npy", "-o", "y.npz")
    assert done.exit_code == OK, done.output
    with np.load("y.npz") as archive:
        assert sorted(archive.files) == ["s.0", "s.1", "s.1_", "s.2"]
        np.testing.assert_array_equal([archive[f"s.{at}"][0] for at in (0, 2)], X[[0, 2]])
        np.testing.assert_array_equal(archive["s.1_"], X[1:2])
        np.testing.assert_array_equal(archive["s.1"], np.maximum(X, 0))


@pytest.mark.parametrize("output", ["y.npy", "y.png", "y.tif", "folder/"])
def test_sequences_go_nowhere_else(here, output):
    """Other files hold one tensor: that is said before the model runs."""
    fails(USAGE, "run", sequence(), "-i", "x.npy", "-o", output, says="output 's' is a sequence of tensors")


def test_kinds_that_no_file_holds(here):
    """An optional output is refused before the model runs, with what to do."""
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [3]))
    model = saved([helper.make_node("Optional", ["x"], ["o"])], [helper.make_value_info("o", kind)])
    for output in ("y.npz", "y.npy"):
        fails(UNSUPPORTED, "run", model, "-i", "x.npy", "-o", output, says="output 'o' is optional(tensor(float))")


def test_texts_become_texts(here):
    """An output of texts goes into files that need no pickle, and not into pictures."""
    words = helper.make_tensor("w", TensorProto.STRING, [2], ["a", "größer"])
    nodes = [helper.make_node("Constant", [], ["c"], value=words), helper.make_node("Identity", ["c"], ["t"])]
    model = saved([*nodes, helper.make_node("Relu", ["x"], ["r"])], [VALUE("t", TensorProto.STRING, [2])])
    for output in ("y.npy", "y.npz"):
        assert invoke("run", model, "-i", "x.npy", "-o", output).exit_code == OK
    assert np.load("y.npy").tolist() == np.load("y.npz")["t"].tolist() == ["a", "größer"]
    fails(USAGE, "run", model, "-i", "x.npy", "-o", "y.png", says="holds texts")


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2fnuz", "int4", "uint4", "float4_e2m1fn"])
def test_small_types_are_written_wider(name):
    """Types that a file would not name are written in NumPy's own, value for value."""
    values = np.array([0, 1, 2, 3]).astype(getattr(ml_dtypes, name))
    written = writable("y", values)
    assert written.dtype.isbuiltin == 1
    assert written.tolist() == [0, 1, 2, 3]


def test_hostile_names_become_members(here):
    """Names of outputs become names that unpack into one folder anywhere, each its own; the command says which."""
    names = [name for name in HOSTILE if name and "\0" not in name]
    done = invoke("run", named(names), "-i", "x.npy", "-o", "y.npz", "--json")
    assert done.exit_code == OK, done.output
    (result,) = json.loads(done.stdout)["results"]
    members = [name.removesuffix(".npy") for name in zipfile.ZipFile("y.npz").namelist()]
    assert members == [result["members"].get(name, name) for name in names]
    assert len({member.casefold() for member in members}) == len(names)
    assert {"file", "allow_pickle", "y"} <= set(members)
    assert "warning: y.npz: '../../evil' is '_.._evil' in the file" in done.stderr
    zipfile.ZipFile("y.npz").extractall("out")
    assert len(list(Path("out").iterdir())) == len(names)
    assert not any(path.is_dir() for path in Path("out").iterdir())


def test_a_single_hostile_name_is_no_path(here):
    """A class map in .npz is named safely, too."""
    saved(
        [helper.make_node("Identity", ["x"], ["../y"])],
        [VALUE("../y", TensorProto.FLOAT, [1, 2, 3])],
        [("x", TensorProto.FLOAT, [1, 2, 3])],
    )
    np.save("x.npy", np.zeros((1, 2, 3), np.float32))
    assert invoke("run", "model.onnx", "-i", "x.npy", "-o", "y.npz", "--argmax").exit_code == OK
    assert zipfile.ZipFile("y.npz").namelist() == ["_y.npy"]


def test_safe_names_are_safe():
    """No separator, no device, no end in a dot or space, not too long, and one name each on any file system."""
    long = ["x" * 300, "x" * 301, "ä" * 300]
    names = [*HOSTILE, *long, "a.", "a ", "a", "A", "e\u0301", "é", "aux.0", "LPT¹", "a\u202eb", "日本"]
    safe = safe_names(names)
    assert list(safe) == list(dict.fromkeys(names))
    assert len({one.casefold() for one in safe.values()}) == len(safe)
    for one in safe.values():
        assert one
        assert not set(one) & set('/\\:*?"<>|\0\u202e')
        assert one.strip(". ") == one
        assert len(one.encode()) <= LONGEST + 4
        assert one.partition(".")[0].casefold() not in ("nul", "aux", "com1", "lpt¹")
    assert safe["日本"] == "日本"
    assert safe_names(safe.values()) == {one: one for one in safe.values()}


def test_what_one_model_writes_another_reads(here):
    """A .npz with safe names feeds a model whose inputs have the unsafe ones."""
    model = named(["a/b"])
    assert invoke("run", model, "-i", "x.npy", "-o", "y.npz").exit_code == OK
    shape = ("a/b", TensorProto.FLOAT, [3])
    saved([helper.make_node("Neg", ["a/b"], ["z"])], [VALUE("z", *shape[1:])], [shape])
    assert invoke("run", "model.onnx", "-i", "y.npz", "-o", "z.npy").exit_code == OK
    np.testing.assert_array_equal(np.load("z.npy"), -np.maximum(X, 0))


@pytest.mark.parametrize("as_json", [False, True])
def test_one_broken_file_stops_only_itself(bright, here, as_json):
    """Of a folder the sound files are written, the broken ones are named at the end, and the exit code is 3."""
    Path("in").mkdir()
    picture("in/a.png", [[0, 255]])
    picture("in/d.png", [[255, 0]])
    Path("in/b.png").write_bytes(b"no picture")
    Path("in/c.npz").write_bytes(b"no archive")
    np.save("in/e.npy", np.zeros(3))
    done = invoke("run", bright, "-i", "in", "-o", "out/", "--argmax", "--keep-going", *(["--json"] if as_json else []))
    assert done.exit_code == FINDINGS
    assert sorted(path.name for path in Path("out").iterdir()) == ["a.png", "d.png"]
    np.testing.assert_array_equal(np.asarray(Image.open("out/d.png")), [[1, 0]])
    errors = done.stderr.splitlines()
    assert [line[:12] for line in errors[:-1]] == ["error: in/c.", "error: in/b.", "error: in/e."]
    assert errors[-1] == "error: 3 of 5 inputs left out, 2 results written"
    if as_json:
        document = json.loads(done.stdout)
        assert [one["source"] for one in document["failed"]] == ["in/c.npz", "in/b.png", "in/e.npy"]
        assert len(document["results"]) == 2


def test_one_broken_file_stops_all(bright, here):
    """Without --keep-going the first broken file of a folder ends the command, and nothing is written."""
    Path("in").mkdir()
    picture("in/a.png", [[0, 255]])
    Path("in/b.png").write_bytes(b"no picture")
    words = ("run", bright, "-i", "in", "-o", "out/", "--argmax")
    fails(UNFIT, *words, says="in/b.png: expected an image")
    fails(UNFIT, *words, says="--keep-going leaves such files out")


def test_inputs_of_one_stem_get_results_of_their_whole_names(bright, here):
    """b.jpg and b.png of a folder are two results, neither of which replaces the other."""
    Path("in").mkdir()
    picture("in/a.png", [[255, 0]])
    for name in ("b.png", "b.bmp", "b.png.bmp"):
        picture(f"in/{name}", [[0, 255]])
    assert invoke("run", bright, "-i", "in", "-o", "out/", "--argmax").exit_code == OK
    names = ["a.png", "b.bmp.png", "b.png.bmp.png", "b.png.png"]
    assert sorted(path.name for path in Path("out").iterdir()) == names


def test_all_files_that_share_a_result_are_named_at_once(bright, here):
    """Every pair stands in one error, and with --keep-going the first of each pair is run."""
    for folder in ("in", "on"):
        Path(folder).mkdir()
        for name in "ab":
            picture(f"{folder}/{name}.png", [[0, 255]])
    words = ("run", bright, "-i", "in", "-i", "on", "-o", "out/", "--argmax")
    fails(USAGE, *words, says="share a result: in/a.png and on/a.png; in/b.png and on/b.png. Rename one of each")
    done = invoke(*words, "--keep-going")
    assert done.exit_code == FINDINGS
    assert sorted(path.name for path in Path("out").iterdir()) == ["a.png.png", "b.png.png"]
    assert "on/a.png: would share the result of in/a.png" in done.stderr


def test_a_folder_of_broken_files_writes_nothing(bright, here):
    """Where nothing can be read, no folder is made."""
    Path("in").mkdir()
    for name in "ab":
        Path(f"in/{name}.png").write_bytes(b"no picture")
    before = contents(here)
    done = invoke("run", bright, "-i", "in", "-o", "out/", "--argmax", "--keep-going")
    assert done.exit_code == FINDINGS
    assert len(done.stderr.splitlines()) == 3
    assert contents(here) == before


def test_the_data_files_of_the_model_are_not_replaced(here):
    """`-o` may not be where the model keeps its weights."""
    copy_model(Path("model.onnx"), [3])
    made = onnx.load("model.onnx")
    made.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [300], np.ones(300, np.float32)))
    made.graph.initializer[0].raw_data = made.graph.initializer[0].raw_data or np.ones(300, np.float32).tobytes()
    del made.graph.initializer[0].float_data[:]
    onnx.save_model(made, "model.onnx", save_as_external_data=True, location="w.npy")
    np.save("x.npy", X)
    fails(USAGE, "run", "model.onnx", "-i", "x.npy", "-o", "w.npy", says="would be overwritten")


@pytest.mark.parametrize("late", [False, True])
def test_a_folder_in_the_way_of_one_result(bright, here, monkeypatch, late):
    """A folder of the name of one result leaves all earlier results as they were, also when it comes while we run."""
    for name in "abc":
        picture(f"{name}.png", [[0, 255]])
    Path("out").mkdir()
    Path("out/a.png").write_bytes(b"earlier")
    if late:
        real = unpool.InferenceSession.run

        def run(self, *arguments):
            Path("out/b.png").mkdir(exist_ok=True)
            return real(self, *arguments)

        monkeypatch.setattr("unpool.onnxruntime.session.InferenceSession.run", run)
    else:
        Path("out/b.png").mkdir()
    done = invoke("run", bright, "-i", "a.png", "-i", "b.png", "-i", "c.png", "-o", "out/", "--argmax")
    assert done.exit_code == UNFIT
    assert "out/b.png: expected a path for a file, got a folder" in done.stderr
    assert contents(Path("out")) == {"a.png": b"earlier", "b.png": None}


RUNS = {
    "npy": ("-o", "y.npy"),
    "npz": ("-o", "y.npz"),
    "tif": ("-o", "y.tif"),
    "mask": ("-o", "y.png", "--argmax"),
    "overlay": ("-o", "y.png", "--overlay"),
    "folder": ("-i", "b.png", "-o", "out/", "--argmax"),
    "new folder": ("-i", "b.png", "-o", "new/", "--argmax"),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", RUNS)
def test_faults_while_results_are_written(bright, here, monkeypatch, name):
    """Whichever request to the disk fails, the results are all there, or all as they were, and no other file stays."""
    picture("a.png", [[0, 255]])
    picture("b.png", [[255, 0]])
    Path("out").mkdir()
    for earlier in ("y.npy", "y.npz", "y.tif", "y.png", "out/b.png"):
        Path(earlier).write_bytes(b"earlier")
    at, count = 0, 1
    while count > at:
        before = contents(here)
        with failing(monkeypatch, at, raising(errno.ENOSPC)) as disk:
            done = invoke("run", bright, "-i", "a.png", *RUNS[name])
        if done.exit_code == OK:
            assert not any("unpool" in one for one in contents(here)), disk.asked[-1]
        else:
            assert done.exit_code == UNFIT
            assert "cannot be written" in done.stderr
            assert contents(here) == before, disk.asked[-1]
        at, count = at + 2, disk.count + 2
    assert done.exit_code == OK
    assert at > 6
