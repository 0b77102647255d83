"""Tests of the kernels, and of the machine below them."""
