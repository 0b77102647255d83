"""Where tiles on a cluster stop scaling: the cost model of docs/clusters.md, and a simulation of every single tile.

    python examples/clusters/scaling.py [--picture scaling.png]

The model knows three limits; the slowest one sets the time. The simulation plays a run event by event, with tiles of
unequal cost, a storage that serves one transfer after the other, and a scheduler that hands out one tile at a time.
"""

import argparse
import random
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from pathlib import Path


@dataclass(frozen=True)
class Run:
    """One image on one cluster.

    Attributes:
        size: side of the square image, in pixels.
        tile: side of a tile, in pixels.
        halo: pixels that a tile reads on each side in addition.
        speed: pixels per second of one worker with one core.
        read: bytes per pixel of the input.
        written: bytes per pixel of the outputs.
        storage: bandwidth of the storage that all workers share, in bytes per second.
        link: bandwidth between one worker and the storage, in bytes per second.
        handing_out: seconds that the scheduler and the client need per tile.
        spread: standard deviation of the time of a tile, as a share of its mean.
    """

    size: int = 100_000
    tile: int = 1024
    halo: int = 44
    speed: float = 3.2e6
    read: float = 4
    written: float = 8
    storage: float = 5e9
    link: float = 0.5e9
    handing_out: float = 0.003
    spread: float = 0.1

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return (-(-self.size // self.tile)) ** 2

    @property
    def overhead(self) -> float:
        """Pixels computed in addition to those that are kept, as a share of these: ((t + 2h) / t)² - 1."""
        return ((self.tile + 2 * self.halo) / self.tile) ** 2 - 1

    @property
    def computing(self) -> float:
        """Seconds of one tile."""
        return (self.tile + 2 * self.halo) ** 2 / self.speed

    @property
    def incoming(self) -> float:
        """Bytes that one tile reads."""
        return (self.tile + 2 * self.halo) ** 2 * self.read

    @property
    def outgoing(self) -> float:
        """Bytes that one tile writes."""
        return self.tile**2 * self.written


def limits(run: Run, workers: int) -> dict[str, float]:
    """Seconds that a run takes by each limit: the workers, the storage, and the scheduler."""
    moving = (run.incoming + run.outgoing) / min(run.link, run.storage)
    return {
        "workers": -(-run.tiles // workers) * (run.computing + moving + run.handing_out),
        "storage": run.tiles * (run.incoming + run.outgoing) / run.storage,
        "scheduler": run.tiles * run.handing_out,
    }


def simulated(run: Run, workers: int, seed: int = 0) -> float:
    """Seconds of a run, simulated tile by tile."""
    chance = random.Random(seed)
    storage_free = scheduler_free = now = 0.0
    left = run.tiles
    events = [(0.0, worker, "idle") for worker in range(min(workers, left))]
    while events:
        now, worker, state = heappop(events)
        if state == "idle":
            if not left:
                continue
            left -= 1
            scheduler_free = max(now, scheduler_free) + run.handing_out
            heappush(events, (scheduler_free, worker, "reads"))
        elif state == "reads":
            storage_free = max(now, storage_free) + run.incoming / run.storage
            computed = max(storage_free, now + run.incoming / run.link) + run.computing * _cost(chance, run.spread)
            heappush(events, (computed, worker, "writes"))
        else:
            storage_free = max(now, storage_free) + run.outgoing / run.storage
            heappush(events, (max(storage_free, now + run.outgoing / run.link), worker, "idle"))
    return now


def _cost(chance: random.Random, spread: float) -> float:
    """Time of a tile over the mean; one tile in a hundred is a straggler, four times as slow."""
    return max(0.1, chance.gauss(1, spread)) * (4 if chance.random() < 0.01 else 1)


def rows(run: Run, counts: list[int]) -> list[tuple[int, float, str, float, float]]:
    """By number of workers: seconds of the model, what limits it, seconds of the simulation, and its efficiency."""
    alone = simulated(run, 1)
    found = []
    for count in counts:
        seconds = limits(run, count)
        limit = max(seconds, key=lambda name: seconds[name])
        played = simulated(run, count)
        found.append((count, seconds[limit], limit, played, alone / played / count))
    return found


def draw(run: Run, counts: list[int], path: Path) -> None:
    """The speed-up over one worker against the number of workers, for some tiles and storages."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), sharex=True, sharey=True)
    left.set_title(f"by size of the tiles, storage of {run.storage / 1e9:g} GB/s")
    for tile in (256, 1024, 4096):
        _curve(left, replace(run, tile=tile), counts, f"{tile} px, halo {replace(run, tile=tile).overhead:.0%}")
    wide = replace(run, size=4 * run.size, tile=4096)
    right.set_title(f"by bandwidth of the storage, tiles of {wide.tile} px")
    for storage in (0.5e9, 2e9, 5e9, 50e9):
        _curve(right, replace(wide, storage=storage), counts, f"{storage / 1e9:g} GB/s")
    for axes in (left, right):
        axes.plot(counts, counts, color="0.8", linewidth=1, zorder=0)
        axes.set(xscale="log", yscale="log", xlabel="workers, one core each")
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    left.set_ylabel("speed-up over one core that needs no halo")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def _curve(axes, run: Run, counts: list[int], label: str) -> None:
    ideal = run.size**2 / run.speed
    axes.plot(counts, [ideal / simulated(run, count) for count in counts], marker="o", markersize=3, label=label)


def main() -> None:
    """Print the table, and draw the picture if it is asked for."""
    words = argparse.ArgumentParser(description="Where tiles on a cluster stop scaling.")
    words.add_argument("--size", type=int, default=Run.size, help="side of the square image, in pixels")
    words.add_argument("--tile", type=int, default=Run.tile, help="side of a tile, in pixels")
    words.add_argument("--picture", type=Path, help="PNG file to draw")
    given = words.parse_args()
    run = Run(size=given.size, tile=given.tile)
    print(f"{run.tiles} tiles, {run.overhead:.1%} more pixels computed than kept")
    print("workers    model s  limited by  simulated s  efficiency")
    for count, seconds, limit, played, efficiency in rows(run, [1, 10, 30, 100, 300, 1000]):
        print(f"{count:7} {seconds:10.0f}  {limit:10} {played:12.0f} {efficiency:11.0%}")
    if given.picture:
        draw(run, [1, 3, 10, 30, 60, 100, 200, 300, 600, 1000], given.picture)


if __name__ == "__main__":
    main()
