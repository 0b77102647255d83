"""Tests of the public functions and of the contract."""
