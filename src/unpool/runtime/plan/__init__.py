"""Decides which node runs where and why, and cuts the model into partitions accordingly."""
