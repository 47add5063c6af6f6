"""`kraft quorum`, and calls to the controllers for other commands."""
