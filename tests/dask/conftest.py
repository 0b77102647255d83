"""No test that starts processes hangs."""

import signal

import pytest

PATIENCE = 240  # seconds per test; on an idle machine the longest takes ten


@pytest.fixture(autouse=True)
def _in_time():
    """A test that waits for what never comes fails, where the system has an alarm."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def ring(*_):
        raise TimeoutError(f"the test did not end within {PATIENCE} seconds")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
