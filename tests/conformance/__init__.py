"""Tests of the programs that compare runtimes; all are in the second tier."""
