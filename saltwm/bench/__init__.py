"""Benchmarks: timing of planning, training and data."""
