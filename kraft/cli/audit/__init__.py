"""`kraft audit`: what producers counted against what is stored, and what was ingested."""
