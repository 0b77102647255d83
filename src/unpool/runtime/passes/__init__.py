"""Passes, which change a graph before the plan cuts it into pieces, and never change what it computes."""
