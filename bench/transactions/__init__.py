"""Benchmarks of transactions: producing in them, processing exactly once, how soon a commit is read."""
