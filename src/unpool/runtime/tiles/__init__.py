"""Exact tiles: which elements of the inputs a part of the outputs depends on, and running a model part by part."""
