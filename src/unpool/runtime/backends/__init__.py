"""Backends: what runs the partitions and nodes of a plan."""
