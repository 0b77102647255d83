"""Tests of sessions and commands on models."""
