"""Chaos on real processes: relays on every connection, faults of nodes, librdkafka's clients, and the run of an
experiment, which gathers evidence and judges nothing."""
