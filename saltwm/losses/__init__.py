"""Terms that keep latents apart, one file each, and the table of objectives that are sums of them."""
