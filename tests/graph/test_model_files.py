"""Models are written whole or not at all, the one that is read is not replaced unasked, and data stays outside."""

import errno
import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from google.protobuf.message import EncodeError
from onnx import external_data_helper

import unpool
from tests.support import models
from tests.support.command import invoke
from tests.support.disk_faults import contents, failing, raising
from unpool.cli.errors import OK, UNFIT, USAGE
from unpool.errors import FileError
from unpool.graph import weights
from unpool.graph.save import ModelWriter

COMMANDS = (("upgrade", "--opset", 22), ("canonicalise",), ("fix",))
BY_NAME = pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
X = models.random(1, 8, 5)


def grow():
    """Two ConvTransposes with weights of 2 kB, and a bias of 32 bytes."""
    return models.model(
        "grow (float[1, 8, 5] x) => (float[1, 8, l] y) "
        '{ t = ConvTranspose <auto_pad = "SAME_UPPER", strides = [2]> (x, w, b) y = ConvTranspose (t, v) }',
        opset=17,
        w=models.random(8, 8, 9, seed=1),
        v=models.random(8, 8, 9, seed=2),
        b=models.random(8),
    )


def stored(path="model.onnx", model=None, locations=("weights.bin",)) -> Path:
    """The model with every tensor in a data file; several of these are taken in turn."""
    made = grow() if model is None else model
    external_data_helper.convert_model_to_external_data(made, location=locations[0], size_threshold=0)
    for at, tensor in enumerate(made.graph.initializer):
        external_data_helper.set_external_data(tensor, locations[at % len(locations)])
    onnx.save(made, path)
    return Path(path)


def places(path):
    """Data files of a model's tensors, by name."""
    made = onnx.load(path, load_external_data=False)
    return {
        tensor.name: external_data_helper.ExternalDataInfo(tensor).location
        for tensor in made.graph.initializer
        if external_data_helper.uses_external_data(tensor)
    }


def computes_the_same(path):
    expected = unpool.InferenceSession(grow()).run(None, {"x": X})[0]
    for session in (unpool.InferenceSession(str(path)), onnxruntime.InferenceSession(str(path))):
        np.testing.assert_allclose(session.run(None, {"x": X})[0], expected, rtol=1e-4, atol=1e-4)


@BY_NAME
def test_the_model_that_is_read_is_not_replaced(here, command):
    """`-o` may not be the input, under any name or spelling, nor its data file; everything stays as it was."""
    stored()
    os.link("model.onnx", "same.onnx")
    Path("link.onnx").symlink_to("model.onnx")
    says = "is the model that is read. Choose another file, or add --force"
    for place in ("model.onnx", here / "." / "model.onnx", "same.onnx", "link.onnx"):
        refused(here, USAGE, *command, "model.onnx", "-o", place, says=says)
    for force in ((), ("--force",)):
        words = (*command, "model.onnx", "-o", "weights.bin", *force)
        refused(here, USAGE, *words, says="holds the weights of model.onnx")


@BY_NAME
def test_external_data_stays_external(here, command):
    """A new model has a data file of its own, beside it, and the files of the first one are not touched."""
    stored()
    before = contents(here)
    Path("out").mkdir()
    for place in ("new.onnx", "out/new.onnx"):
        done = invoke(*command, "model.onnx", "-o", place)
        assert done.exit_code == OK, done.output
        assert f"{place} with {place}.data: " in done.stdout
        assert places(place) == dict.fromkeys(("w", "v", "b"), "new.onnx.data")
        computes_the_same(place)
    after = contents(here)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"new.onnx", "new.onnx.data", "out", "out/new.onnx", "out/new.onnx.data"}
    for path in (Path("model.onnx"), Path("weights.bin")):
        path.unlink()
    computes_the_same("new.onnx")


@BY_NAME
def test_force_replaces_the_model_and_its_data(here, command):
    """With --force the model and its data files are replaced together, and no other file comes or goes."""
    stored(locations=("one.bin", "two.bin"))
    before = contents(here)
    done = invoke(*command, "model.onnx", "-o", "model.onnx", "--force")
    assert done.exit_code == OK, done.output
    assert set(contents(here)) == set(before)
    assert set(places("model.onnx").values()) == {"one.bin", "two.bin"}
    computes_the_same("model.onnx")


def test_a_model_without_data_files_stays_so(here):
    """What is one file is one file afterwards."""
    onnx.save(grow(), "model.onnx")
    assert invoke("canonicalise", "model.onnx", "-o", "new.onnx").exit_code == OK
    assert set(contents(here)) == {"model.onnx", "new.onnx"}


def refused(here, code, *words, says):
    """The command ends with this code and these words, and everything stays as it was."""
    before = contents(here)
    done = invoke(*words)
    assert done.exit_code == code
    assert says in done.stderr
    assert contents(here) == before


def test_a_foreign_data_file_is_not_replaced(here):
    """A file where the data would go is replaced only if it is that of the model which is replaced with it."""
    stored()
    Path("new.onnx.data").write_bytes(b"precious")
    words = ("canonicalise", "model.onnx", "-o", "new.onnx")
    refused(here, UNFIT, *words, says="new.onnx.data: exists, and is no data file")
    Path("new.onnx.data").unlink()
    for _ in range(2):
        assert invoke(*words).exit_code == OK
    computes_the_same("new.onnx")


def test_the_data_of_the_input_is_not_replaced_under_another_model(here):
    """A model that uses the data file of the one that is read does not make it free."""
    stored(locations=("new.onnx.data",))
    Path("new.onnx").write_bytes(Path("model.onnx").read_bytes())
    refused(here, UNFIT, "canonicalise", "model.onnx", "-o", "new.onnx", says="new.onnx.data")


def test_data_that_others_use_is_not_replaced(here):
    """A data file that holds more than this model uses is that of other models, too."""
    stored()
    with Path("weights.bin").open("ab") as stream:
        stream.write(bytes(2**18))
    words = ("canonicalise", "model.onnx", "-o", "model.onnx", "--force")
    refused(here, UNFIT, *words, says="of which model.onnx uses at most")


def test_what_is_too_large_for_one_file_gets_a_data_file(here, monkeypatch):
    """A model above the limit of one message keeps its large tensors outside."""
    onnx.save(grow(), "model.onnx")
    with monkeypatch.context() as limits:
        limits.setattr(weights, "LARGEST_MESSAGE", 3000)
        limits.setattr(weights, "LARGE", 100)
        assert invoke("canonicalise", "model.onnx", "-o", "new.onnx").exit_code == OK
    assert places("new.onnx") == {"w": "new.onnx.data", "v": "new.onnx.data"}
    computes_the_same("new.onnx")


def test_what_protobuf_cannot_count_is_too_large():
    """Above 2 GiB protobuf refuses to write a model, and to say how large it is: that is an error of ours, too."""

    class Huge:
        def SerializeToString(self):  # noqa: N802 - protobuf's name
            raise EncodeError("Failed to serialize proto")

        ByteSize = SerializeToString

    assert weights.is_too_large(Huge())
    with pytest.raises(unpool.UnpoolError, match=r"piece 1: the model exceeds 2 GiB"):
        weights.serialize(Huge(), "piece 1")


@pytest.mark.sample(3)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EXDEV], ids=errno.errorcode.get)
@pytest.mark.parametrize("output", ["model.onnx", "new.onnx"])
def test_faults_while_a_model_is_written(here, monkeypatch, number, output):
    """Whichever request to the disk fails, model and data files are all new or all as they were."""
    stored(locations=("one.bin", "two.bin"))
    at, count = 0, 1
    while count > at:
        before = contents(here)
        with failing(monkeypatch, at, raising(number)) as disk:
            place = ModelWriter(Path("model.onnx"), Path(output))
            try:
                place.write(onnx.load("model.onnx"))
            except FileError:
                assert contents(here) == before, disk.asked[-1]
            else:
                assert not any("unpool" in name for name in contents(here)), disk.asked[-1]
                computes_the_same(output)
        at, count = at + 1, disk.count + 1
    assert at > 12


@BY_NAME
def test_a_folder_in_the_way_leaves_all_as_it_was(here, command):
    """A folder in the place of the data file is found before any work, and nothing is written."""
    stored()
    Path("new.onnx.data").mkdir()
    words = (*command, "model.onnx", "-o", "new.onnx")
    refused(here, UNFIT, *words, says="new.onnx.data: expected a path for a file, got a folder")


@BY_NAME
def test_standard_output_is_no_place(here, command):
    """`-o -` is an error, not a file of that name."""
    onnx.save(grow(), "model.onnx")
    refused(here, USAGE, *command, "model.onnx", "-o", "-", says="")
