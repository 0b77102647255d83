"""Versions of an operator in words, their differences, and sizes as arithmetic and as a drawing."""
