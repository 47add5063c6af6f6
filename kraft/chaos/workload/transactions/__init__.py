"""Clients of transactions: producers, processors that do their work exactly once, readers of committed records."""
