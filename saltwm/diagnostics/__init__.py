"""What the paper claims, measured: how prediction errors travel through repeated transitions."""
