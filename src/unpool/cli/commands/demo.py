"""The command `unpool demo`: its options."""

from pathlib import Path

from unpool.cli.exits import guard
from unpool.cli.options import Quiet, Threads, Verbose


def demo(threads: Threads = None, quiet: Quiet = False, verbose: Verbose = False) -> None:
    """Find the coins in a photograph: writes coins-mask.png and coins-overlay.png into this folder."""
    with guard(quiet=quiet):
        from unpool.cli import console
        from unpool.cli.demo import run_demo

        console.set_up_log(verbose)
        for line in run_demo(Path.cwd(), threads):
            console.say(line, quiet)
