"""The command `unpool`: parse, call one library function, print."""

from unpool.cli.entry import main

__all__ = ["main"]
