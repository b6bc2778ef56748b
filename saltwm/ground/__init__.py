"""Ground: errors, checks, randomness, configuration, progress; no torch."""
