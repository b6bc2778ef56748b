"""What stands on disk: datasets, checkpoints, records, and how they are written."""
