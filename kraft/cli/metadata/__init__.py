"""`kraft metadata`."""
