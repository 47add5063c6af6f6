"""`kraft top`: a cluster's state and rates, live in a terminal."""
