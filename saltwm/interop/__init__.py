"""Other people's formats and tools; only jobs import them."""
