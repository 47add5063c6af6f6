"""Benchmarks of consumer groups: rebalances, heartbeats, commits, reading, a lost coordinator, a shard that loads."""
