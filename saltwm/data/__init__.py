"""What training reads of a dataset: windows, batches, and what is held out from it."""
