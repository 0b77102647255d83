"""unpool.torch.export: torch's own call, with the operators kept, the opset asked for, and nothing left behind."""

import inspect
import io
import logging
import threading
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnxscript import opset18
from torch import nn
from torch.onnx._internal.torchscript_exporter.registration import registry
from torch.onnx.utils import register_custom_op_symbolic, unregister_custom_op_symbolic

import unpool.torch
from tests.cases.exports import CASES, RoundTrip, noise
from tests.support.export_judge import exported, judge
from unpool.torch import export, legacy_translations

LEGACY_NAMES = ("aten::max_pool2d", "aten::max_pool2d_with_indices", "aten::max_unpool2d", "aten::max_unpool3d")


def operators(model):
    return [node.op_type for node in model.graph.node]


def legacy(module, x, **options):
    """The module through the exporter behind dynamo=False."""
    file = io.BytesIO()
    assert export(module, (x,), file, dynamo=False, **options) is None
    return onnx.load_from_string(file.getvalue())


def registered():
    """What torch's registry finds under our names, and the size check of nn.functional."""
    groups = [registry.get_function_group(name) for name in LEGACY_NAMES]
    found = [group and [group.get(opset) for opset in (9, 10, 20)] for group in groups]
    return [one if one else [None] * 3 for one in found], nn.functional._check_unpool_output_size


def test_the_signature_is_torchs():
    """Every argument of torch.onnx.export is one of ours, and no other is."""
    assert inspect.signature(export) == inspect.signature(torch.onnx.export)
    with pytest.raises(TypeError, match="opset"):
        export(nn.MaxPool2d(2), (noise(1, 1, 4, 4),), opset=20)


def test_the_program_is_torchs_and_the_file_is_the_program(tmp_path, quiet):
    """An ONNXProgram comes back; what it says in the opset asked for stands in the file, under the names given."""
    path = tmp_path / "model.onnx"
    program = export(
        RoundTrip(2, True, 2), (noise(1, 2, 5, 6),), path, opset_version=11, input_names=["x"], output_names=["y"]
    )
    assert isinstance(program, torch.onnx.ONNXProgram)
    saved = onnx.load(path)
    assert saved.graph == program.model_proto.graph
    assert [(entry.domain, entry.version) for entry in saved.opset_import] == [("", 11)]
    names = [saved.graph.input[0].name, saved.graph.output[0].name]
    assert (names, operators(saved)) == (["x", "y"], ["MaxPool", "MaxUnpool"])


def test_a_file_in_memory_is_deprecated_as_in_torch(quiet):
    """BytesIO works with the default exporter, and warns as torch does."""
    file = io.BytesIO()
    with pytest.warns(DeprecationWarning, match="Give a path") as caught:
        program = export(nn.MaxPool2d(2), (noise(1, 1, 4, 4),), file)
    assert [one.filename for one in caught if "Give a path" in str(one.message)] == [__file__]
    assert onnx.load_from_string(file.getvalue()).graph == program.model_proto.graph


def test_entries_of_the_caller_win(quiet):
    """A custom_translation_table keeps its entries; ours stay for the rest."""
    table = {torch.ops.aten.max_unpool2d.default: lambda x, indices, output_size: opset18.Neg(x)}
    program = export(RoundTrip(2, True, 2), (noise(1, 2, 5, 6),), custom_translation_table=table)
    assert operators(program.model_proto) == ["MaxPool", "Neg"]


def test_an_exported_program_goes_to_the_default_exporter(quiet):
    """As in torch, an ExportedProgram is not traced, whatever dynamo says."""
    x = noise(1, 2, 5, 6)
    program = export(torch.export.export(RoundTrip(2, True, 2), (x,)), (x,), dynamo=False, opset_version=13)
    assert operators(program.model_proto) == ["MaxPool", "MaxUnpool"]


def test_options_of_the_exporters_arrive(quiet):
    """A model that is not optimised keeps the nodes that optimising removes, and still has the opset asked for."""
    program = export(RoundTrip(2, True, 2), (noise(1, 2, 5, 6),), optimize=False, opset_version=10)
    onnx.checker.check_model(program.model_proto, full_check=True)
    assert [entry.version for entry in program.model_proto.opset_import] == [10]


@pytest.mark.parametrize("dynamo", [True, False])
def test_torchs_warnings_about_itself_are_not_the_callers(dynamo):
    """Of an exported unpooling the caller hears that it is in training mode, and that dynamo=False is deprecated."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        export(RoundTrip(2, True, 2).eval(), (noise(1, 2, 5, 6),), None if dynamo else io.BytesIO(), dynamo=dynamo)
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == (not dynamo)
    assert all("legacy TorchScript-based" in message for message in messages)
    with pytest.warns(UserWarning, match="training mode"):
        export(RoundTrip(2, True, 2), (noise(1, 2, 5, 6),))


def test_torchs_logs_about_other_packages_are_hidden(caplog):
    """With verbose=False torch does not log which operators of packages that are not installed it lacks."""
    torch_log = logging.getLogger("torch.onnx")
    torch_log.addHandler(caplog.handler)
    try:
        export(RoundTrip(2, True, 2).eval(), (noise(1, 2, 5, 6),), verbose=False)
        assert "is not installed" not in caplog.text
        logging.getLogger("torch.onnx._internal.exporter._registration").warning("an operator is registered twice")
    finally:
        torch_log.removeHandler(caplog.handler)
    assert "registered twice" in caplog.text


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"opset_version": 8}, "at least 9"),
        ({"opset_version": 24, "dynamo": False}, r"up to \d+, the newest with dynamo=False, got 24"),
        ({"opset_version": 40}, "got 40, where it stays at"),
    ],
)
def test_opsets_that_cannot_be_had(options, message, quiet):
    """The error names what is possible, and no file is written."""
    file = io.BytesIO()
    with pytest.raises(unpool.UnsupportedError, match=message):
        export(nn.MaxPool2d(2, return_indices=True), (noise(1, 1, 4, 4),), file, **options)
    assert not file.getvalue()


@pytest.mark.parametrize("dynamo", [True, False])
def test_types_of_later_opsets_are_refused(dynamo):
    """MaxPool has bfloat16 from opset 22 on; before that torch would write a file that is no ONNX."""
    verdict = judge(CASES["2-D round trip, bfloat16"], dynamo, 20)
    assert verdict.outcome == "unsupported"
    assert "Export with opset_version 22 or later" in verdict.reason


@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize(
    ("name", "moves"),
    [
        ("2-D round trip, odd size", []),
        ("2-D round trip, any batch", []),
        ("2-D unpooling into larger planes", ["Mod", "Add"]),
    ],
)
def test_static_round_trips_need_no_arithmetic(name, moves, dynamo):
    """Back to the pool's size indices go straight to MaxUnpool, whatever the batch; other planes take Mod and Add."""
    model = exported(CASES[name], dynamo, 13)
    assert [each for each in operators(model) if each != "Constant"] == ["MaxPool", *moves, "MaxUnpool"]
    assert moves or list(model.graph.node[1].input) == list(model.graph.node[0].output)


class Merged(nn.Module):
    """Unpools two planes as one, whose indices then count in the same plane."""

    def forward(self, x):
        values, indices = nn.functional.max_pool2d(x, 2, return_indices=True)
        return nn.functional.max_unpool2d(values.view(1, 1, 4, 3), indices.view(1, 1, 4, 3), (1, 2))


class Squeezed(nn.Module):
    """Unpools channels as rows, for the only row is taken away."""

    def forward(self, x):
        values, indices = nn.functional.max_pool2d(x, (1, 2), return_indices=True)
        return nn.functional.max_unpool2d(values.squeeze(2), indices.squeeze(2), 1)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("module", "shape"), [(Merged(), (1, 2, 4, 6)), (Squeezed(), (3, 2, 1, 8))])
@pytest.mark.parametrize("dynamo", [True, False])
def test_planes_that_become_others_keep_their_indices(module, shape, dynamo, quiet):
    """Indices in a plane are those of torch, also where the same elements are other planes before and after."""
    x = noise(*shape)
    x[:, 0, :, ::2] += 10
    x[:, 1, :, 1::2] += 10
    model = export(module, (x,), verbose=False).model_proto if dynamo else legacy(module, x)
    session = unpool.InferenceSession(model.SerializeToString())
    found = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_array_equal(found[0], module(x).numpy())


def test_pools_without_indices_have_one_output(quiet):
    """dynamo=False alone gives every pool a second output that nobody reads."""
    model = legacy(nn.MaxPool2d(2), noise(1, 1, 4, 4))
    assert [list(node.output) for node in model.graph.node] == [[model.graph.output[0].name]]


def test_dropped_ceil_windows_have_their_shape_in_the_file(quiet):
    """A ceil_mode window that would start in the padding does not count, in the file's shapes either."""
    model = legacy(nn.MaxPool2d(1, 2, ceil_mode=True), noise(1, 1, 8, 6))
    sizes = [dim.dim_value for dim in model.graph.output[0].type.tensor_type.shape.dim]
    assert sizes == [1, 1, 4, 3]


def test_legacy_translations_are_put_back(quiet):
    """After an export, one inside another statement, and one that fails, torch is as it was."""
    before = registered()
    with legacy_translations():
        during = registered()
        with legacy_translations():
            legacy(RoundTrip(2, True, 2), noise(1, 2, 5, 6))
        assert registered()[0] == during[0]
    assert registered() == before
    with pytest.raises(unpool.UnsupportedError, match="opset 9 has no dilations"):
        legacy(nn.MaxPool2d(2, 1, dilation=2, return_indices=True), noise(1, 2, 5, 6), opset_version=9)
    assert registered() == before


class FixedUnpool(nn.Module):
    """A pool and its unpooling to a size in numbers."""

    def forward(self, x):
        y, indices = nn.functional.max_pool2d(x, 2, return_indices=True)
        return nn.functional.max_unpool2d(y, indices, 2, output_size=[4, 6])


def test_torch_names_the_operator_after_an_export(quiet):
    """The refusal of an unpooling by torch says which operator it does not support, as before."""
    legacy(RoundTrip(2, True, 2), noise(1, 2, 5, 6))
    with pytest.raises(Exception, match=r"'aten::max_unpool2d' .* is not supported"):
        torch.onnx.export(FixedUnpool(), (noise(1, 2, 4, 6),), io.BytesIO(), dynamo=False)


def test_a_translation_of_the_caller_stays(quiet):
    """What the caller registered is used, and is still registered afterwards."""

    def symbolic(g, x, indices, output_size):
        return g.op("Neg", x)

    register_custom_op_symbolic("aten::max_unpool2d", symbolic, 9)
    try:
        model = legacy(RoundTrip(2, True, 2), noise(1, 2, 5, 6))
        assert "Neg" in operators(model)
        assert registry.get_function_group("aten::max_unpool2d").get(9) is symbolic
    finally:
        unregister_custom_op_symbolic("aten::max_unpool2d", 9)


def test_tracing_inside_the_statement(quiet):
    """torch.jit.trace gives a module that exports; what is not traced has its output size checked as ever."""
    x = noise(1, 2, 5, 6)
    with legacy_translations():
        traced = torch.jit.trace(RoundTrip(2, True, 2), x)
        with pytest.raises(ValueError, match="non-negative"):
            nn.MaxUnpool2d(1, 1, padding=3)(torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 2, 2, dtype=torch.int64))
    assert operators(legacy(traced, x)) == ["MaxPool", "MaxUnpool"]


def test_threads_export_one_after_the_other():
    """The exporter behind dynamo=False belongs to the process; two threads still get their models."""
    before, models = registered(), {}

    def work(sized):
        models[sized] = exported(CASES["2-D round trip, odd size" if sized else "2-D round trip"], False, 13)

    threads = [threading.Thread(target=work, args=(sized,)) for sized in (False, True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [operators(models[sized]) for sized in (False, True)] == [["MaxPool", "MaxUnpool"]] * 2
    assert registered() == before


@pytest.mark.sample(2)
@pytest.mark.parametrize("dynamo", [True, False])
def test_what_was_trained_with_our_operators_exports(dynamo, tmp_path, quiet):
    """Accelerated modules and our functions are written as torch's own are, in both exporters."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.down, self.up = torch.nn.MaxPool2d(2, return_indices=True), torch.nn.MaxUnpool2d(2)
            self.grow = torch.nn.ConvTranspose2d(3, 2, 2, 2)

        def forward(self, x):
            y, i = self.down(unpool.torch.max_pool2d(x, 3, 1, 1))
            y, j = unpool.torch.max_pool1d(
                self.grow(self.up(y, i, output_size=x.shape[2:])).flatten(2), 3, 2, 0, 1, True, True
            )
            y = unpool.torch.max_unpool1d(y, j, 3, 2, output_size=(4 * x.shape[2] * x.shape[3],))
            return unpool.torch.conv_transpose1d(y, torch.ones(2, 1, 3), None, 2, groups=2)

    network, x = Net().eval(), noise(2, 3, 7, 9)
    theirs, ours, expected = tmp_path / "theirs.onnx", tmp_path / "ours.onnx", network(x)
    export(network, (x,), theirs, dynamo=dynamo, input_names=["x"])
    unpool.torch.accelerate(network)
    export(network, (x,), ours, dynamo=dynamo, input_names=["x"])
    assert operators(onnx.load(ours)) == operators(onnx.load(theirs))
    for session in (unpool.InferenceSession(ours), onnxruntime.InferenceSession(ours)):
        np.testing.assert_allclose(session.run(None, {"x": x.numpy()})[0], expected.detach().numpy(), atol=1e-5)


@pytest.mark.sample(2)
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_programs_of_accelerated_models_export(is_dynamic, quiet):
    """An ExportedProgram with unpool's operators is written as one with torch's, fixed or dynamic."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.pool, self.unpool = torch.nn.MaxPool2d(2, return_indices=True), torch.nn.MaxUnpool2d(2)
            self.grow, self.last = torch.nn.ConvTranspose2d(3, 4, 3, 2, 1, groups=1), torch.nn.MaxPool2d(3, 2, 1)

        def forward(self, x):
            y = self.unpool(*self.pool(x), output_size=x.shape[2:])
            y = self.grow(self.last(y), output_size=x.shape[2:])
            y = unpool.torch.conv_transpose1d(y.flatten(2), torch.ones(4, 1, 3), groups=2)
            return unpool.torch.max_pool1d(y, 2)

    network, x = Net().eval(), noise(2, 3, 7, 9)
    unpool.torch.accelerate(network)
    shapes = ({2: torch.export.Dim.DYNAMIC},) if is_dynamic else None
    program = torch.export.export(
        network, (x,), dynamic_shapes=shapes, prefer_deferred_runtime_asserts_over_guards=True
    )
    model = export(program, (x,), opset_version=17, verbose=False).model_proto
    assert operators(model).count("MaxUnpool") == 1
    assert operators(model).count("ConvTranspose") == 2
    assert {node.domain for node in model.graph.node} == {""}
    for rows in (7, 12) if is_dynamic else (7,):
        x = noise(2, 3, rows, 9)
        session = unpool.InferenceSession(model.SerializeToString())
        (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        np.testing.assert_allclose(y, network(x).detach().numpy(), atol=1e-5)
