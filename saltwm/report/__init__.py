"""Records on disk -> tables and one page. Knows neither torch nor environments."""
