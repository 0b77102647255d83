"""Passes, which change a graph before the plan cuts it into partitions, and never change what it computes."""
