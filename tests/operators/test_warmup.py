"""`unpool warmup` leaves nothing to compile for the calls it names."""

import pytest
from typer.testing import CliRunner

import unpool
from unpool import warmup
from unpool.cli.app import app


def test_every_step_runs():
    """Each step is a call that works."""
    found = dict(warmup.steps(["float32"]))

    assert len(found) == 11
    assert all(call() is not None for call in found.values())


def test_integers_are_only_pooled():
    """Types that no other operator has get the steps of the pool, with and without indices."""
    assert all(name.startswith("uint8 MaxPool,") for name, _ in warmup.steps(["uint8"]))
    assert len(dict(warmup.steps(["uint8"]))) == 6


def test_unknown_types_are_refused():
    """A type that no operator has is named before anything is compiled."""
    with pytest.raises(unpool.UnpoolError, match=r"warmup: expected types of .* got 'float8'"):
        next(warmup.steps(["float8"]))


def test_command():
    """The command says what is ready, or what is wrong, with the exit codes of the others."""
    done = CliRunner().invoke(app, ["warmup", "--type", "float32"])
    failed = CliRunner().invoke(app, ["warmup", "--type", "float8"])

    assert done.exit_code == 0
    assert "11 calls are ready for float32" in done.stdout
    assert failed.exit_code != 0
    assert "float8" in failed.stderr
