"""`kraft cluster health`: what is wrong with a cluster, for people and for scripts that wait."""
