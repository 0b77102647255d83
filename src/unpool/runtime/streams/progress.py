"""How far a run is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        tiles: of the image.
        resumed: those of them that an earlier run had finished.
        done: of all tiles.
        seconds: since this run began with its first tile.
        peak: bytes of memory that the process has had at most; 0 where the system does not tell.
        was_complete: an earlier run had written all of it, so that nothing was computed.

    >>> half = Progress(tiles=100, resumed=20, done=60, seconds=20.0, peak=0)
    >>> half.rate, half.left
    (2.0, 20.0)
    """

    tiles: int
    resumed: int
    done: int
    seconds: float
    peak: int
    was_complete: bool = False

    @property
    def rate(self) -> float:
        """Tiles per second of this run."""
        return (self.done - self.resumed) / self.seconds if self.seconds > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Seconds that the other tiles will take; None as long as nobody knows."""
        return (self.tiles - self.done) / self.rate if self.rate else None
