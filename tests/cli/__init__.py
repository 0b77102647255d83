"""Tests of the command `unpool`."""
