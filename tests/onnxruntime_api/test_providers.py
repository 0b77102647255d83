"""Providers: which are asked for, which a session has, and what is said of others."""

import pytest

from tests.onnxruntime_api.nets import ends

CPU, CUDA, UNKNOWN = "CPUExecutionProvider", "CUDAExecutionProvider", "AbacusExecutionProvider"
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
    net.assert_right(session)


def test_listed_providers_may_be_asked_for(ort, net, session):
    """What `get_available_providers` and `get_providers` give is taken by another session, without a warning."""
    net.assert_right(ort.InferenceSession(net.content, providers=ort.get_available_providers()))
    again = ort.InferenceSession(net.content, providers=session.get_providers())
    assert again.get_providers() == session.get_providers()


def test_options_are_given_beside_the_names(ort, net):
    """One dict per name is taken, and every provider has its options."""
    session = ort.InferenceSession(net.content, providers=[CPU], provider_options=[{}])
    assert session.get_provider_options()[CPU] == {}
    assert set(session.get_provider_options()) == set(session.get_providers())


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        *((name, [name, CPU]) for name in (CUDA, "TensorrtExecutionProvider", "CoreMLExecutionProvider", UNKNOWN)),
        (CUDA, [CUDA]),
        (CUDA, [(CUDA, {"device_id": 0})]),
    ],
)
def test_a_provider_that_is_not_installed_is_warned_of(ort, net, name, asked):
    """A script that asks for a GPU, alone or first, runs on the CPU, and a warning names what is missing."""
    with pytest.warns(UserWarning, match=name):
        session = ort.InferenceSession(net.content, providers=asked)
    assert name not in session.get_providers()
    assert session.get_providers()[-1] == CPU
    net.assert_right(session)


def test_an_unknown_provider_without_falling_back(ort, net):
    """With `enable_fallback=0` a name that nobody knows is an error that has it."""
    with pytest.warns(UserWarning, match=UNKNOWN), pytest.raises((RuntimeError, ValueError), match=UNKNOWN):
        ort.InferenceSession(net.content, providers=[UNKNOWN], enable_fallback=0)


@pytest.mark.parametrize(
    ("names", "options"),
    [([3], None), ([CPU], []), ([CPU], ["fast"]), ([CPU], 3), ([(CPU, {})], [{}])],
    ids=["a number", "too few options", "options that are no dict", "options that are no list", "options twice"],
)
def test_wrong_providers_are_a_value_error_without_falling_back(ort, net, names, options):
    """Providers that make no sense are a ValueError where no fallback is wanted."""
    with pytest.raises(ValueError, match="provider"):
        ort.InferenceSession(net.content, providers=names, provider_options=options, enable_fallback=0)


@pytest.mark.parametrize("arguments", [([CPU],), ([CPU], [{}]), ([(CPU, {})],), ()])
def test_the_providers_of_a_session_may_be_set(session, net, arguments):
    """`set_providers` takes names with options in both forms, or nothing; the model runs, its ends are as before."""
    before = ends(session.get_inputs())
    assert session.set_providers(*arguments) is None
    assert session.get_providers()[-1] == CPU
    assert session.get_provider_options()[CPU] == {}
    assert ends(session.get_inputs()) == before
    net.assert_right(session)
