"""The command `unpool`: parse, call one library function, print."""

from unpool.cli.launcher import main

__all__ = ["main"]
