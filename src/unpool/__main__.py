"""`python -m unpool` is the command `unpool`."""

from unpool.cli import main

if __name__ == "__main__":
    main()
