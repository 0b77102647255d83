"""Fitted numbers have an origin, and compiled code reads them from the same records."""

from numba import njit

from unpool.kernels.cpu import tuning
from unpool.kernels.cpu.tuning import JOBS


def test_every_record_has_an_origin() -> None:
    """Each record of fitted numbers says where it was measured and when it was set."""
    records = {type(value) for name, value in vars(tuning).items() if name.isupper() and hasattr(value, "_fields")}
    assert records == set(tuning.FITS)
    assert all(fit.processor and fit.date for fit in tuning.FITS.values())


def test_compiled_code_reads_a_record() -> None:
    """A field is a constant there."""
    imbalance, parts = njit(lambda: (JOBS.imbalance, JOBS.parts_per_thread))()
    assert (imbalance, parts) == (JOBS.imbalance, JOBS.parts_per_thread)
