"""Tests of what is written about the project, and of its rooms."""
