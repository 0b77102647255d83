"""Images that kill the process that reads them: at once, or by their memory."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Stored:
    """As much of storage as tiles are read from."""

    array: np.ndarray

    @property
    def shape(self):
        return self.array.shape

    @property
    def dtype(self):
        return self.array.dtype


@dataclass(frozen=True)
class Deadly(Stored):
    """An array; so many processes that read the element `place` of the last two axes are killed by it."""

    place: tuple[int, int]  # row and column
    deaths: Path  # the empty folder in which they are counted
    most: int  # how many there are

    def __getitem__(self, slices):
        is_read = all(part.start <= at < part.stop for part, at in zip(slices[-2:], self.place, strict=True))
        count = len(list(self.deaths.iterdir()))
        if is_read and count < self.most:
            (self.deaths / str(count)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.array[slices]


@dataclass(frozen=True)
class Hungry(Stored):
    """An array; to read it takes so many bytes more than it has, for some seconds."""

    bytes: int

    def __getitem__(self, slices):
        memory = np.ones(self.bytes, np.uint8)
        time.sleep(10)
        return self.array[slices] * memory[0]
