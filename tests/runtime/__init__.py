"""Tests of sessions, passes and commands on models."""
