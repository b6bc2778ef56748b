"""Public weights in and out."""
