"""`python -m unpool` is the command `unpool`."""

from unpool.cli import main

main()
