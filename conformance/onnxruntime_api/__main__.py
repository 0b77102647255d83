"""`python -m conformance.onnxruntime_api`: asks onnxruntime and unpool, and writes docs/onnxruntime.md.

Exit code: 0.
"""

import sys

import onnxruntime

import unpool
from conformance.onnxruntime_api.page import PAGE, SECTIONS, page, row_of
from conformance.run import say
from unpool.files import write


def main() -> int:
    """Ask every probe of both modules and write the page."""
    rows = {}
    for section, probes in SECTIONS.items():
        say(f"{section}: {len(probes)}")
        rows[section] = [row_of(probe, onnxruntime, unpool) for probe in probes]
    write(PAGE, page(rows).encode())
    say(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
