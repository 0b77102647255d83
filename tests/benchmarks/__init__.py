"""Tests of the programs that measure speed; all are in the second tier."""
