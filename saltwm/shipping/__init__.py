"""Trained models that others can plan with at once: weights alone, with a card, and held-out data beside them."""
