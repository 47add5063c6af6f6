"""The leader epochs of one log: their checkpoint file, what the batches say of them, and who writes the file."""
