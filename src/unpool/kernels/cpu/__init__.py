"""Kernels compiled by Numba for the CPU."""
