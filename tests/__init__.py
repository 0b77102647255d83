"""Tests, by the room that they are of."""
