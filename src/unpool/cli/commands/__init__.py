"""One file for each command: its options, and the call of the module that does the work."""
