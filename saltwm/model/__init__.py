"""Pixels to latents to next latents: the encoder, the action encoder and the two transitions."""
