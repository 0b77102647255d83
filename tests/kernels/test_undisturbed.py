"""What compiles is called with room for all its frames, and without collections."""

import gc
import os

import pytest

from unpool.kernels.cpu.machine.undisturbed import undisturbed


def new_pages(depth: int) -> int:
    """How often the system gave memory to the innermost of so many calls, while it called a function 200 times."""
    import resource

    if depth:
        return new_pages(depth - 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(200):
        returned()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def returned() -> None:
    """Nothing."""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows does not count the pages that it gives")
def test_frames_are_in_one_piece() -> None:
    """However deep the calls are, none asks the system for memory again and again."""
    assert max(undisturbed(new_pages, depth) for depth in range(400)) < 100


@pytest.mark.parametrize("is_on", [True, False])
def test_collections_pause(is_on) -> None:
    """Nothing is collected meanwhile; afterwards it is as it was, whatever was raised."""
    (gc.enable if is_on else gc.disable)()
    try:
        assert not undisturbed(gc.isenabled)
        assert gc.isenabled() == is_on
        with pytest.raises(ZeroDivisionError):
            undisturbed(lambda: 1 / 0)
        assert gc.isenabled() == is_on
    finally:
        gc.enable()
