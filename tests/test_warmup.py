"""`unpool warmup` leaves nothing to compile for the calls it names."""

import pytest
from typer.testing import CliRunner

import unpool
from unpool import warmup
from unpool.cli.app import app


@pytest.mark.parametrize("name", ["float32", "bfloat16", "uint8"])
def test_every_step_runs(name):
    """Each step is a call that works, for floats and for integers."""
    steps = dict(warmup.steps([name]))

    assert len(steps) == (6 if name == "uint8" else 11)
    assert all(call() is not None for call in steps.values())


def test_unknown_types_are_refused():
    """A type that no operator has is named before anything is compiled."""
    with pytest.raises(unpool.UnpoolError, match=r"warmup: expected types of .* got 'float8'"):
        next(warmup.steps(["float8"]))


def test_command():
    """The command says what is ready, or what is wrong, with the exit codes of the others."""
    done = CliRunner().invoke(app, ["warmup", "--type", "uint8"])
    failed = CliRunner().invoke(app, ["warmup", "--type", "float8"])

    assert done.exit_code == 0
    assert "6 calls are ready for uint8" in done.stdout
    assert failed.exit_code != 0
    assert "float8" in failed.stderr
