"""`kraft topics`."""
