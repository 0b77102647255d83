"""Tests of operators on tensors, and of export."""
