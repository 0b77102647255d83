"""Programs in other languages that run compiled models: examples/onnxruntime; the one in C is in test_compile.py."""

import os
import shutil
from importlib.resources import files
from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

import unpool.onnxruntime
from tests.onnxruntime.test_compile import array, volumes
from tests.support.c_program import (
    EXAMPLES,
    assert_host_gives,
    compile_host,
    needs_linux,
    needs_shipped_kernels,
    needs_zig,
    run_host,
)  # fmt: skip
from tests.support.library_sessions import session_of

JAR = os.environ.get("ONNXRUNTIME_JAR", "")

pytestmark = [needs_shipped_kernels, needs_linux]


def check_host(host, folder):
    """The bits of Python, and the words of the library for a damaged plan."""
    made, x = volumes(), array(1, 8, 4, 8, 8)
    model = unpool.onnxruntime.compile(made)
    onnx.save(model, folder / "compiled.onnx")
    assert_host_gives(host, folder / "compiled.onnx", x, session_of(made).run(None, {"x": x})[0], folder)
    for node in model.graph.node:
        if node.domain == "unpool":
            node.attribute[0].s = b"damaged"
    onnx.save(model, folder / "compiled.onnx")
    done, _ = run_host(host, folder / "compiled.onnx", x, folder)
    assert done.returncode == 1
    assert "unpool: this plan is damaged. Compile the model again." in done.stderr


@pytest.mark.slow  # zig first compiles C++'s library
@needs_zig
def test_a_program_in_cpp(tmp_path):
    """By `zig c++`, with the names of onnxruntime's header."""
    headers = Path(__file__).parents[1] / "support" / "onnxruntime_cxx"
    options = ("-std=c++17", "-Wall", "-Wextra", f"-I{headers}")
    check_host(compile_host(tmp_path, "cpp/run_model.cpp", *options, compiler="c++"), tmp_path)


@pytest.mark.skipif(not JAR, reason="ONNXRUNTIME_JAR names no jar of onnxruntime, which the indexes of CI lack")
@pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java")
def test_a_program_in_java(tmp_path):
    """Java compiles and runs the one file."""
    check_host((["java", "-cp", JAR, EXAMPLES / "java" / "RunModel.java"], {}), tmp_path)


def triton_config(text):
    """A configuration as Triton reads it: the fields of its ModelConfig that the example uses, by their names."""
    scalar = descriptor_pb2.FieldDescriptorProto
    kinds = {"string": scalar.TYPE_STRING, "int32": scalar.TYPE_INT32, "int64": scalar.TYPE_INT64}
    messages = {
        "Tensor": {"name": "string", "data_type": "DataType", "dims": "repeated int64"},
        "InstanceGroup": {"kind": "Kind", "count": "int32"},
        "ModelOperations": {"op_library_filename": "repeated string"},
        "ModelConfig": {
            "name": "string", "backend": "string", "max_batch_size": "int32", "input": "repeated Tensor",
            "output": "repeated Tensor", "instance_group": "repeated InstanceGroup",
            "model_operations": "ModelOperations",
        },
    }  # fmt: skip
    file = descriptor_pb2.FileDescriptorProto(name="model_config.proto", package="test", syntax="proto3")
    for name, values in {"DataType": ["TYPE_INVALID", "TYPE_FP32"], "Kind": ["KIND_AUTO", "KIND_CPU"]}.items():
        enum = file.enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for number, (field, words) in enumerate(fields.items(), 1):
            *repeated, kind = words.split()
            added = message.field.add(name=field, number=number)
            added.label = scalar.LABEL_REPEATED if repeated else scalar.LABEL_OPTIONAL
            if kind in kinds:
                added.type = kinds[kind]
            else:
                added.type = scalar.TYPE_MESSAGE if kind in messages else scalar.TYPE_ENUM
                added.type_name = f".test.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return text_format.Parse(text, message_factory.GetMessageClass(pool.FindMessageTypeByName("test.ModelConfig"))())


def test_the_configuration_for_triton():
    """It parses, and its tensors are those of the compiled model that it names."""
    (path,) = (EXAMPLES / "triton" / "models").glob("*/config.pbtxt")
    config = triton_config(path.read_text())
    assert (config.name, config.backend, config.max_batch_size) == (path.parent.name, "onnxruntime", 0)
    assert [Path(each).name for each in config.model_operations.op_library_filename] == ["libunpool.so"]
    shapes = {each.name: tuple(each.dims) for each in config.input}
    model = unpool.onnxruntime.compile(str(files("unpool") / "data" / "coins.onnx"), shapes=shapes)
    session = session_of(model, trust_plans=True)
    arrays = session.run(None, {name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
    results = {info.name: array.shape for info, array in zip(session.get_outputs(), arrays, strict=True)}
    assert {each.name: tuple(each.dims) for each in config.output} == results
