"""Tests of pages in a real browser."""
