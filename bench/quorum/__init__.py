"""`python -m bench.quorum`: what the controller quorum does in a second, and how soon it is back."""
