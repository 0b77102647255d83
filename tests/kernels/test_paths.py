"""Every path of the pools and of ConvTranspose by force, on sizes around its blocks: the table of kernel_paths.py."""

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from tests.cases.kernel_paths import PATHS
from unpool.kernels.cpu.max_pool import pool, rolling
from unpool.kernels.cpu.tuning import POOL_MEMORY

PER_CHUNK = 72


def chunks() -> Iterator[tuple[str, range]]:
    """Names of paths, and parts of their numbers."""
    for name, path in PATHS.items():
        for first in range(0, len(path.numbers), PER_CHUNK):
            is_compiled = pytest.mark.slow if name.startswith("rolling") else ()
            yield pytest.param(name, path.numbers[first : first + PER_CHUNK], marks=is_compiled, id=f"{name}-{first}")


@pytest.mark.sample(3)
@pytest.mark.parametrize(("name", "numbers"), [*chunks()])
def test_agrees_with_the_reference(name: str, numbers: range) -> None:
    """Values and indices are right to the bit with any threads, blocks and gaps, and nothing beside them is written."""
    path = PATHS[name]._replace(numbers=numbers)
    with patch.object(pool, "POOL_MEMORY", POOL_MEMORY._replace(prefetched=numbers[0] // PER_CHUNK % 2 << 40)):
        assert path.differences() == []


@pytest.mark.slow
def test_rolling_is_taken() -> None:
    """Most cases of rolling rows take that way; a window beyond the plane may not."""
    numbers = PATHS["rolling pools"].numbers[:70]
    with patch.object(rolling, "launch", wraps=rolling.launch) as taken:
        assert PATHS["rolling pools"]._replace(numbers=numbers).differences() == []
    assert taken.call_count > 0.9 * 4 * len(numbers)
