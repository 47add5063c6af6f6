"""Unmodified clients as the workload of a real cluster, and what they recorded."""
