"""Sessions whose values stay on a GPU: partitions on onnxruntime's CUDA provider, nodes of ours between them.

Without a GPU its memory is that of the CPU (tests/support/host_gpu.py), and everything else is as on one.
"""

import json
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import OrtValueVector
from typer.testing import CliRunner

import unpool
from tests.support import models
from tests.support.host_gpu import CPU, CUDA, CpuSession, HostMemory
from unpool.cli.app import app
from unpool.cli.errors import OK
from unpool.kernels.gpu.elements import INTERPRETED
from unpool.runtime import requirements
from unpool.runtime.backends import cuda
from unpool.runtime.backends.cuda import ort_value_of, tensor_of
from unpool.runtime.session.ort_compat import providers

CLOSE = {"rtol": 2e-5, "atol": 2e-5}


@pytest.fixture
def asked(monkeypatch):
    """What a script asks for, with a stand-in for the memory of a GPU where there is none."""
    if not INTERPRETED:
        if CUDA not in onnxruntime.get_available_providers():
            pytest.skip("beside a GPU, sessions need onnxruntime-gpu; without one, its memory has a stand-in")
        return [CUDA]
    monkeypatch.setattr(requirements.onnxruntime, "get_available_providers", lambda: [CUDA, CPU])
    monkeypatch.setattr(requirements.onnxruntime, "InferenceSession", CpuSession)
    monkeypatch.setattr(cuda, "CudaMemory", HostMemory)
    return [CUDA]


@pytest.fixture
def stand_in(asked):
    """The same, for what only the stand-in counts."""
    if not INTERPRETED:
        pytest.skip("counts what the stand-in notes, which has no part in it beside a GPU")
    return asked


def plain(made):
    """The session on the CPU, without another order of sums."""
    return unpool.InferenceSession(made, exact=True, threads=1)


def memory(session):
    """The stand-in of a session, with nothing noted."""
    found = session._model.cuda
    found.waits.clear()
    found.moved.clear()
    return found


NETS = {
    "segnet": (models.segnet, {"image": models.random(1, 3, 12, 10)}),
    "branches": (models.branches, {"x": models.random(1, 2, 8, 8)}),
    "channels last": (models.nhwc, {"x": models.random(1, 2, 6, 6)}),
    "bfloat16": (models.bfloat16, {"x": models.random(1, 2, 6, 6)}),
    "a size from a node": (models.dynamic, {"x": models.random(2, 2, 5, 7)}),
    "weights that are fed": (
        models.optional_input,
        {"x": models.random(1, 2, 4), "w1": models.random(2, 3, 2, seed=4)},
    ),
    "outputs that are inputs": (models.passed_through, {"x": models.random(1, 1, 4, 4)}),
    "a body": (models.conditional, {"x": models.random(1, 2, 6, 6), "keep": np.array(True)}),
}


@pytest.mark.sample(4)
@pytest.mark.filterwarnings("ignore::unpool.runtime.session.session.FallbackWarning")
@pytest.mark.parametrize("name", NETS)
def test_networks_give_what_they_give_on_the_cpu(asked, name):
    """Every kind of value finds its way: floats of two types, indices, sizes, constants, inputs that are outputs."""
    made, feed = NETS[name]
    session = unpool.InferenceSession(made(), providers=asked)
    expected = plain(made()).run(None, feed)

    got = session.run(None, feed)

    assert all(isinstance(one, np.ndarray) for one in got)
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, **({"rtol": 0.02} if name == "bfloat16" else CLOSE))


def test_values_that_torch_does_not_get_go_through_the_host(asked):
    """Booleans and vectors stay; a type that DLPack lacks and a sequence come from the host; all are right."""
    made = models.model(
        f"""strange (float[1, 2, 6, 6] x) => (bool[1, 2, 3, 3] b, float8e4m3fn[1, 2, 3, 3] f, int64[4] n,
                    float[1, 2, 6, 6] y, seq(float[1, 2, 6, 6]) q, float[1, 2, 6, 6] z) {{
            t = Tanh (x)
            p, i = MaxPool <{models.POOL}> (t)
            zero = CastLike (zero1, p)
            b = Greater (p, zero)
            f = Cast <to = 17> (p)
            n = Shape (p)
            u = MaxUnpool <{models.POOL}> (p, i)
            chosen = Where (b, p, zero)
            back = Cast <to = 1> (f)
            both = Add (chosen, back)
            v = MaxUnpool <{models.POOL}> (both, i)
            y = Add (u, v)
            w = MaxUnpool <{models.POOL}> (both, i)
            z = Neg (w)
            q = SequenceConstruct (w, z) }}""",
        opset=19, ir=9, zero1=np.float32(0),
    )  # fmt: skip
    feed = {"x": models.random(1, 2, 6, 6)}

    got = unpool.InferenceSession(made, providers=asked).run(None, feed)

    for one, other in zip(got, plain(made).run(None, feed), strict=True):
        assert type(one) is type(other)
        assert np.shape(one) == np.shape(other)
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None)
        np.testing.assert_allclose(np.asarray(one, np.float32), np.asarray(other, np.float32), **CLOSE)


def test_indices_and_maxima_are_those_of_the_cpu_bit_for_bit(asked):
    """Ties and NaN are decided as on the CPU, behind a partition that only moves values."""
    made = models.model(
        f"""pool (float[1, 2, 6, 6] x) => (float[1, 2, 3, 3] p, int64[1, 2, 3, 3] i) {{
            y = Transpose <perm = [0, 1, 3, 2]> (x)
            p, i = MaxPool <{models.POOL}> (y) }}"""
    )
    x = np.round(models.random(1, 2, 6, 6))
    x[0, 1, 2, 3] = np.nan
    session = unpool.InferenceSession(made, providers=asked)

    for one, other in zip(session.run(None, {"x": x}), plain(made).run(None, {"x": x}), strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def test_the_plan_says_where_each_step_runs(asked):
    """Partitions and nodes of ours are on the GPU, and none of them is a Conv that only a CPU turns."""
    plan = unpool.plan(models.segnet(), providers=asked)

    assert {one.device for one in plan} == {"cuda:0"}
    assert {one.runner for one in plan if one.operator == "Conv"} == {"onnxruntime"}
    assert "unpool, cuda:0" in str(plan)
    assert "onnxruntime, cuda:0" in plan.summary


def test_a_model_without_operators_of_ours_says_it_too(asked):
    """One session of onnxruntime runs it there."""
    assert {one.device for one in unpool.plan(models.none_of_ours(), providers=asked)} == {"cuda:0"}


def test_the_device_is_that_of_the_options(stand_in):
    """`device_id` is that of onnxruntime, for kernels and for what is bound."""
    session = unpool.InferenceSession(models.branches(), providers=[(CUDA, {"device_id": 1})])

    assert {one.device for one in session.plan} == {"cuda:1"}
    session.io_binding().bind_output("y", "cuda", 1)
    with pytest.raises(RuntimeError, match="'cpu' or cuda:1, got 'cuda', number 0"):
        session.io_binding().bind_output("y", "cuda")


def test_a_node_with_bodies_stays_on_the_host(asked):
    """The plan says so, and its bodies are planned for the CPU."""
    plan = unpool.plan(models.conditional(), providers=asked)
    where = {one.operator: one.device for one in plan}

    assert where == {"Relu": "cuda:0", "If": "cpu", "MaxPool": "cpu", "ConvTranspose": "cpu", "Neg": "cuda:0"}


def test_nothing_leaves_the_gpu_between_steps(stand_in):
    """A picture goes to the first partition, scores come back, and no value in between is copied."""
    session = unpool.InferenceSession(models.segnet(), providers=stand_in)
    noted = memory(session)

    session.run(None, {"image": models.random(1, 3, 12, 10)})

    assert noted.moved == ["to the host"]


@pytest.mark.slow
def test_every_step_waits_or_all_are_on_one_stream(stand_in):
    """Torch's stream is waited for around every step; on a stream of the caller's nothing is."""
    x = {"image": models.random(1, 3, 12, 10)}
    own = unpool.InferenceSession(models.segnet(), providers=stand_in)
    theirs = unpool.InferenceSession(models.segnet(), providers=[(CUDA, {"user_compute_stream": "7340"})])
    unsynchronised = onnxruntime.RunOptions()
    unsynchronised.add_run_config_entry("disable_synchronize_execution_providers", "1")

    noted, others = memory(own), memory(theirs)
    own.run(None, x)
    assert noted.waits == ["stream", "stream"] * len(own.plan.steps)
    own.run(None, x, unsynchronised)
    assert noted.waits.count("device") == sum(step.runner == "onnxruntime" for step in own.plan.steps)
    theirs.run(None, x, unsynchronised)
    assert (others.stream, others.waits) == (7340, [])


def test_tensors_on_the_gpu_are_inputs(asked):
    """A tensor of torch and an OrtValue there are read where they are."""
    made, feed = models.dynamic(), models.random(2, 2, 5, 7)
    session = unpool.InferenceSession(made, providers=asked)
    x = session._model.cuda.to_device(feed)

    expected = plain(made).run(None, {"x": feed})[0]
    assert np.array_equal(session.run(None, {"x": x})[0], expected)
    (value,) = session.run_with_ort_values(None, {"x": ort_value_of(x)})
    assert (value.device_name(), value.shape()) == ("cpu", [2, 2, 5, 7])
    assert np.array_equal(value.numpy(), expected)


def test_memory_on_the_gpu_can_be_bound(asked):
    """Inputs are read at an address there, outputs are written at one, or left there."""
    made, feed = models.dynamic(), models.random(2, 2, 5, 7)
    session = unpool.InferenceSession(made, providers=asked)
    memory, kind = session._model.cuda, np.float32
    x, y = memory.to_device(feed), memory.to_device(np.zeros_like(feed))
    expected = plain(made).run(None, {"x": feed})[0]
    binding = session.io_binding()

    binding.bind_input("x", "cuda", 0, kind, x.shape, x.data_ptr())
    binding.bind_output("y", "cuda", 0, kind, y.shape, y.data_ptr())
    session.run_with_iobinding(binding)
    assert np.array_equal(memory.to_host(y), expected)

    binding.bind_output("y", "cuda")
    session.run_with_iobinding(binding)
    (made_there,) = binding.get_outputs()
    assert made_there.device_name() == memory.place[0]
    assert np.array_equal(memory.to_host(tensor_of(made_there)), expected)
    assert np.array_equal(binding.copy_outputs_to_cpu()[0], expected)

    binding.bind_output("y")
    session.run_with_iobinding(binding)
    assert binding.get_outputs()[0].device_name() == "cpu"
    assert np.array_equal(binding.copy_outputs_to_cpu()[0], expected)

    y.zero_()
    binding.bind_ortvalue_input("x", ort_value_of(x))
    binding.bind_ortvalue_output("y", ort_value_of(y))
    session.run_with_iobinding(binding)
    assert np.array_equal(memory.to_host(y), expected)
    binding.synchronize_outputs()


def test_vectors_of_ort_values_are_written_there(asked):
    """As in onnxruntime, an empty vector is filled on the host, and values that are in it are written in place."""
    made, feed = models.branches(), models.random(1, 2, 8, 8)
    session = unpool.InferenceSession(made, providers=asked)
    memory = session._model.cuda
    y = memory.to_device(np.zeros_like(feed))
    fed, filled, given = (OrtValueVector() for _ in range(3))
    fed.push_back(ort_value_of(memory.to_device(feed))._get_c_value())
    given.push_back(ort_value_of(y)._get_c_value())

    session.run_with_ortvaluevector(None, ["x"], fed, ["y"], filled, [])
    session.run_with_ortvaluevector(None, ["x"], fed, ["y"], given, [])

    expected = plain(made).run(None, {"x": feed})[0]
    np.testing.assert_allclose(filled[0].numpy(), expected, **CLOSE)
    np.testing.assert_allclose(memory.to_host(y), expected, **CLOSE)


def test_threads_share_a_session(asked):
    """Runs at the same time do not see each other's values."""
    session = unpool.InferenceSession(models.dynamic(), providers=asked)
    feeds = [{"x": models.random(1, 2, 4, 4, seed=number)} for number in range(4)]
    expected = [session.run(None, feed)[0] for feed in feeds]

    with ThreadPoolExecutor(2) as pool:
        for got, one in zip(pool.map(lambda feed: session.run(None, feed)[0], feeds * 2), expected * 2, strict=True):
            assert np.array_equal(got, one)


def test_memory_that_does_not_fit_is_refused(asked):
    """Another GPU, another type and another shape are named before anything runs."""
    session = unpool.InferenceSession(models.branches(), providers=asked)
    x = session._model.cuda.to_device(models.random(1, 2, 8, 8))
    binding = session.io_binding()

    with pytest.raises(RuntimeError, match="'cpu' or cuda:0, got 'cuda', number 3"):
        binding.bind_output("y", "cuda", 3)
    with pytest.raises(unpool.UnpoolError, match=r"is float64, expected tensor\(float\)"):
        session.run(None, {"x": x.double()})
    with pytest.raises(unpool.ShapeError, match="has shape 1x2x8x4, expected 1x2x8x8"):
        session.run(None, {"x": x[..., :4]})
    with pytest.raises(unpool.UnpoolError, match=r"Use x.detach\(\)"):
        session.run(None, {"x": x.clone().requires_grad_()})
    binding.bind_input("x", "cuda", 0, np.float32, x.shape, x.data_ptr())
    binding.bind_output("y", "cuda", 0, np.float32, [1, 2, 8, 4], x.data_ptr())
    with pytest.raises(RuntimeError, match="memory of shape"):
        session.run_with_iobinding(binding)


def test_wrong_indices_are_an_error_of_the_run_that_has_them(asked):
    """The verdict is waited for, and the message names the node."""
    made = models.model(
        f"net (float[1, 1, 2, 2] x, int64[1, 1, 2, 2] i) => (float[1, 1, 4, 4] y) "
        f"{{ s = Neg (x) y = MaxUnpool <{models.POOL}> (s, i) }}"
    )
    session = unpool.InferenceSession(made, providers=asked)

    with pytest.raises(unpool.IndicesError, match="MaxUnpool->y"):
        session.run(None, {"x": models.random(1, 1, 2, 2), "i": np.full((1, 1, 2, 2), 99)})


def test_a_session_on_the_gpu_is_pickled_and_told_apart(asked):
    """Its copy asks for the same device, and both name it among their providers."""
    providers = [(asked[0], {"use_tf32": 0})]
    session = pickle.loads(pickle.dumps(unpool.InferenceSession(models.branches(), providers=providers)))

    assert session.get_providers()[1:] == [CUDA, CPU]
    assert session.get_input_memory_infos()[0].name == "Cuda"
    assert session.get_provider_options()[CUDA] == {"use_tf32": "0"}
    assert {one.device for one in session.plan} == {"cuda:0"}


def test_cuda_graphs_are_refused(asked):
    """A graph that is captured reads the addresses of its first run, and those of partitions change."""
    with pytest.raises(unpool.UnsupportedError, match="enable_cuda_graph"):
        unpool.InferenceSession(models.branches(), providers=[(CUDA, {"enable_cuda_graph": "1"})])


def test_the_cpu_asked_for_first_keeps_the_cpu(asked):
    """Of two providers the first gets what it takes, and the CPU takes everything."""
    session = unpool.InferenceSession(models.branches(), providers=[CPU, CUDA])

    assert {one.device for one in session.plan} == {"cpu"}


def test_cuda_that_does_not_start_is_left_out(stand_in, monkeypatch):
    """As with onnxruntime the CPU runs the model then; here a warning says so."""
    monkeypatch.setattr(CpuSession, "get_providers", lambda _: [CPU])
    with pytest.warns(UserWarning, match="cannot start CUDAExecutionProvider"):
        session = unpool.InferenceSession(models.branches(), providers=stand_in)

    assert session.get_providers()[1:] == [CPU]
    assert {one.device for one in session.plan} == {"cpu"}


def without_triton(monkeypatch):
    """Nobody can import the kernels."""

    def refuse(name):
        raise ModuleNotFoundError("torch and triton are not installed. Run: pip install '.[gpu]'")

    monkeypatch.setattr(providers, "import_module", refuse)


def without_a_gpu_for_torch(monkeypatch):
    """Torch is a build for the CPU."""
    monkeypatch.setattr(HostMemory, "is_available", staticmethod(lambda: False))


@pytest.mark.parametrize(
    ("lacking", "words"),
    [(without_triton, r"pip install '\.\[gpu\]'"), (without_a_gpu_for_torch, "torch finds no GPU here. Install")],
)
def test_without_kernels_values_go_through_the_host(stand_in, monkeypatch, lacking, words):
    """A warning says what to install, and results are the same."""
    lacking(monkeypatch)
    x = models.random(1, 2, 8, 8)
    with pytest.warns(UserWarning, match=words):
        session = unpool.InferenceSession(models.branches(), providers=stand_in)

    assert {(one.runner, one.device) for one in session.plan} == {("unpool", "cpu"), ("onnxruntime", "cuda:0")}
    np.testing.assert_allclose(session.run(None, {"x": x})[0], plain(models.branches()).run(None, {"x": x})[0], **CLOSE)


def test_inspect_shows_the_device(stand_in, tmp_path):
    """`unpool inspect --provider cuda` prints the plan with it."""
    path = tmp_path / "net.onnx"
    path.write_bytes(models.branches().SerializeToString())

    found = CliRunner().invoke(app, ["inspect", str(path), "--provider", "cuda", "--json"])

    assert found.exit_code == OK, found.output
    assert {row["device"] for row in json.loads(found.stdout)["plan"]} == {"cuda:0"}


def test_inspect_says_what_is_missing(tmp_path):
    """Where onnxruntime has no CUDA, the command says what to install."""
    path = tmp_path / "net.onnx"
    path.write_bytes(models.branches().SerializeToString())
    if CUDA in onnxruntime.get_available_providers():
        pytest.skip("nothing is missing where onnxruntime has CUDA")

    found = CliRunner().invoke(app, ["inspect", str(path), "--provider", "cuda"])

    assert found.exit_code != OK
    assert "onnxruntime-gpu" in found.output
