"""`kraft reassign`."""
