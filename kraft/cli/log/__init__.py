"""`kraft log`."""
