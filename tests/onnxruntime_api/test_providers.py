"""Providers: which are asked for, which a session has, and what is said of others."""

import numpy as np
import pytest

CPU = "CPUExecutionProvider"
ASKED = {
    "none": None,
    "an empty list": [],
    "a name": [CPU],
    "a tuple of names": (CPU,),
    "a name with options": [(CPU, {})],
    "a name with unknown options": [(CPU, {"arena_extend_strategy": "kSameAsRequested", "speed": 3})],
}


@pytest.mark.parametrize("asked", ASKED)
def test_the_cpu_is_always_there(ort, net, asked):
    """However providers are asked for, the CPU is the last one, and the model runs."""
    session = ort.InferenceSession(net.content, providers=ASKED[asked])

    assert session.get_providers()[-1] == CPU
    assert np.array_equal(session.run(None, net.feed)[0], net.z)


def test_all_available_providers_may_be_asked_for(ort, net):
    """What `get_available_providers` gives is taken by a session."""
    session = ort.InferenceSession(net.content, providers=ort.get_available_providers())

    assert np.array_equal(session.run(None, net.feed)[0], net.z)


def test_the_providers_of_a_session_are_available(ort, session):
    """A session has no provider that the module does not list."""
    assert set(session.get_providers()) <= set(ort.get_available_providers())


def test_the_providers_of_a_session_make_another(ort, net, session):
    """What `get_providers` gives is taken by another session, without a warning."""
    again = ort.InferenceSession(net.content, providers=session.get_providers())

    assert again.get_providers() == session.get_providers()


def test_all_providers_end_with_the_cpu(ort):
    """`get_all_providers` gives every provider that there could be, the CPU last."""
    assert ort.get_all_providers()[-1] == CPU
    assert set(ort.get_available_providers()) <= set(ort.get_all_providers())


def test_options_are_given_beside_the_names(ort, net):
    """One dict per name is taken, and every provider has its options."""
    session = ort.InferenceSession(net.content, providers=[CPU], provider_options=[{}])

    assert session.get_provider_options()[CPU] == {}
    assert set(session.get_provider_options()) == set(session.get_providers())


@pytest.mark.parametrize("name", ["CUDAExecutionProvider", "TensorrtExecutionProvider", "CoreMLExecutionProvider"])
def test_a_provider_that_is_not_installed_is_warned_of(ort, net, name):
    """A script that asks for a GPU first runs on the CPU, and a warning names what is missing."""
    with pytest.warns(UserWarning, match=name):
        session = ort.InferenceSession(net.content, providers=[name, CPU])

    assert name not in session.get_providers()
    assert np.array_equal(session.run(None, net.feed)[0], net.z)


@pytest.mark.parametrize("asked", [["CUDAExecutionProvider"], [("CUDAExecutionProvider", {"device_id": 0})]])
def test_only_a_provider_that_is_not_installed(ort, net, asked):
    """Where nothing that was asked for is installed, the CPU runs the model."""
    with pytest.warns(UserWarning, match="CUDAExecutionProvider"):
        session = ort.InferenceSession(net.content, providers=asked)

    assert session.get_providers()[-1] == CPU


def test_an_unknown_provider_is_warned_of(ort, net, capsys):
    """A name that nobody knows is named in a warning; the CPU runs the model."""
    with pytest.warns(UserWarning, match="AbacusExecutionProvider"):
        session = ort.InferenceSession(net.content, providers=["AbacusExecutionProvider", CPU])

    assert session.get_providers()[-1] == CPU


@pytest.mark.changed
def test_an_unknown_provider_without_falling_back(ort, net):
    """With `enable_fallback=0` a name that nobody knows is an error that has it."""
    with (
        pytest.warns(UserWarning, match="AbacusExecutionProvider"),
        pytest.raises((RuntimeError, ValueError), match="AbacusExecutionProvider"),
    ):
        ort.InferenceSession(net.content, providers=["AbacusExecutionProvider"], enable_fallback=0)


def test_a_provider_that_is_named_twice_counts_once(ort, net):
    """The second of two equal names is warned of."""
    with pytest.warns(UserWarning, match="Duplicate"):
        session = ort.InferenceSession(net.content, providers=[CPU, CPU])

    assert session.get_providers().count(CPU) == 1


@pytest.mark.changed
@pytest.mark.parametrize(
    ("names", "options"),
    [([3], None), ([CPU], []), ([CPU], ["fast"]), ([CPU], 3), ([(CPU, {})], [{}])],
    ids=["a number", "too few options", "options that are no dict", "options that are no list", "options twice"],
)
def test_wrong_providers_are_a_value_error_without_falling_back(ort, net, names, options):
    """Providers that make no sense are a ValueError where no fallback is wanted."""
    with pytest.raises(ValueError, match="provider"):
        ort.InferenceSession(net.content, providers=names, provider_options=options, enable_fallback=0)


def test_the_providers_of_a_session_may_be_set(session, net):
    """`set_providers` loads the model again; it runs, and its ends are as before."""
    before = [(one.name, one.shape, one.type) for one in session.get_inputs()]
    assert session.set_providers([CPU]) is None

    assert session.get_providers()[-1] == CPU
    assert [(one.name, one.shape, one.type) for one in session.get_inputs()] == before
    assert np.array_equal(session.run(None, net.feed)[0], net.z)


@pytest.mark.parametrize("arguments", [([CPU], [{}]), ([(CPU, {})],), ()])
def test_the_ways_to_set_providers(session, net, arguments):
    """`set_providers` takes names with options in both forms, or nothing."""
    session.set_providers(*arguments)

    assert session.get_provider_options()[CPU] == {}
    assert np.array_equal(session.run(None, net.feed)[0], net.z)


def test_an_unknown_provider_cannot_be_set(session):
    """A name that nobody knows is a RuntimeError that has it, behind a warning."""
    with (
        pytest.warns(UserWarning, match="AbacusExecutionProvider"),
        pytest.raises(RuntimeError, match="AbacusExecutionProvider"),
    ):
        session.set_providers(["AbacusExecutionProvider"])


def test_falling_back_is_switched(session, net):
    """`disable_fallback` and `enable_fallback` return nothing, and the model runs."""
    assert (session.disable_fallback(), session.enable_fallback()) == (None, None)
    assert np.array_equal(session.run(None, net.feed)[0], net.z)


def test_there_are_no_results_of_tuning(session):
    """The CPU is not tuned: the list is empty, and an empty list may be set."""
    assert session.get_tuning_results() == []
    assert session.set_tuning_results([]) is None


def test_results_of_tuning_for_an_unknown_provider(session):
    """Results for a provider that the session has not are ignored, or an error where that is asked for."""
    results = [{"ep": "AbacusExecutionProvider", "results": {}, "validators": {}}]
    session.set_tuning_results(results)

    with pytest.raises(RuntimeError, match="AbacusExecutionProvider"):
        session.set_tuning_results(results, error_on_invalid=True)


@pytest.mark.needs("InferenceSession.set_ep_dynamic_options")
def test_options_of_providers_change_between_runs(session, net):
    """`set_ep_dynamic_options` takes a dict of words, and the model runs."""
    session.set_ep_dynamic_options({"ep.dynamic.workload_type": "Efficient"})

    assert np.array_equal(session.run(None, net.feed)[0], net.z)


@pytest.mark.needs("InferenceSession.release_captured_graph")
def test_there_are_no_captured_graphs(session):
    """The CPU captures no graph, so releasing one does nothing."""
    assert (session.release_captured_graph(), session.release_captured_graph(1)) == (None, None)


@pytest.mark.needs("InferenceSession.get_provider_graph_assignment_info")
def test_which_provider_has_which_node(ort, net):
    """Where it is recorded, every node of the model is under a provider of the session."""
    options = ort.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = ort.InferenceSession(net.content, options)
    parts = session.get_provider_graph_assignment_info()

    assert {part.ep_name for part in parts} <= set(session.get_providers())
    assert "Relu" in {node.op_type for part in parts for node in part.get_nodes()}


@pytest.mark.needs("InferenceSession.get_provider_graph_assignment_info")
def test_which_provider_has_which_node_is_not_recorded_unasked(session):
    """Without the entry that records it, asking is an error that names the entry."""
    with pytest.raises(Exception, match=r"session\.record_ep_graph_assignment_info"):
        session.get_provider_graph_assignment_info()


@pytest.mark.needs("InferenceSession.get_input_memory_infos")
def test_where_inputs_and_outputs_lie(session):
    """There is one description of memory per input and per output, of the CPU."""
    inputs, outputs = session.get_input_memory_infos(), session.get_output_memory_infos()

    assert (len(inputs), len(outputs)) == (1, 1)
    assert [info.device_id for info in (*inputs, *outputs)] == [0, 0]


@pytest.mark.needs("InferenceSession.get_input_epdevices")
def test_which_device_reads_the_inputs(session):
    """There is one entry per input, which may be None."""
    assert len(session.get_input_epdevices()) == 1
