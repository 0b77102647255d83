"""Random cases of all operators on random chunks: python -m tools.campaigns.dask_chunks [CASES] [CHUNKINGS].

Prints how many were equal to the oracle, refused as it says, or left open; the first that differs is an error.
"""

import sys
from collections import Counter

from tests.cases.generated import case
from tests.dask.cases import check


def main(cases: int, chunkings: int) -> None:
    """Check so many cases, each with so many chunkings."""
    counts: Counter[str] = Counter()
    wrong = 0
    for seed in range(cases):
        for chunking in range(chunkings):
            try:
                counts[f"{case(seed).operator}: {check(seed, chunking)}"] += 1
            except Exception as error:  # the campaign goes on; it fails at its end
                wrong += 1
                print(f"case {seed}, chunking {chunking}: {type(error).__name__}: {str(error)[:600]}", flush=True)
    print(*(f"{name} {count}" for name, count in sorted(counts.items())), f"wrong: {wrong}", sep="\n")
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    main(*given, *(3000, 2)[len(given) :])
