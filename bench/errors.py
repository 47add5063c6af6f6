"""The error that ends a run of the benchmark, as a sentence."""

from __future__ import annotations


class BenchError(RuntimeError):
    """The run cannot go on: a process died, did not answer in time, or failed a record."""
