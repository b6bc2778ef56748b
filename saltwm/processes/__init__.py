"""Processes: the watched pool, stopping, many devices."""
