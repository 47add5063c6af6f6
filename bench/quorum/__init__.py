"""`python -m bench.quorum`: the controller quorum's work in a second, and its time back after a failure."""
