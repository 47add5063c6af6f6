"""Benchmarks of the Spark connector beside Spark's own Kafka source: batches, streams, delays, what idling costs."""
