"""Clients with the patience that the options ask for, and the reading of a slice: what batches and streams share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from kraft.spark.client import DEFAULT_METADATA_MAX_AGE_S, ClusterClient
from kraft.spark.data_loss import LossPolicy
from kraft.spark.options import ReadOptions
from kraft.spark.quiet import hide_broken_pipes
from kraft.spark.retry import RetryPolicy
from kraft.spark.slice_reader import PartitionSlice, SliceReader

_SPARKS_RETRY_INTERVAL_MS = 1000
"""Its default, where attempts are counted as there; without a count they come faster at first."""


def driver_client(options: ReadOptions, *, budget_s: float = RetryPolicy.budget_s) -> ClusterClient:
    """Asks for metadata and offsets."""
    policy = RetryPolicy(max_attempts=options.num_retries, budget_s=budget_s)
    interval_ms = options.retry_interval_ms
    if interval_ms is None and options.num_retries is not None:
        interval_ms = _SPARKS_RETRY_INTERVAL_MS
    if interval_ms is not None:
        policy = replace(policy, first_backoff_s=interval_ms / 1000, max_backoff_s=interval_ms / 1000)
    return _client(options, policy)


def read_slice(options: ReadOptions, loss: LossPolicy, part: PartitionSlice) -> Iterator[pa.RecordBatch]:
    """The rows of one slice, read by an executor, which waits longer for brokers: the driver has found them already."""
    with slice_client(options) as client:
        yield from SliceReader(client, part, columns=options.columns, loss=loss).batches()


def slice_client(options: ReadOptions) -> ClusterClient:
    """Of an executor, which reads slices."""
    hide_broken_pipes()
    budget_s = RetryPolicy.budget_s if options.poll_timeout_ms is None else options.poll_timeout_ms / 1000
    return _client(options, RetryPolicy(budget_s=budget_s, first_answer_s=budget_s))


def _client(options: ReadOptions, policy: RetryPolicy) -> ClusterClient:
    max_age_ms = options.metadata_max_age_ms
    return ClusterClient(
        options.bootstrap,
        client_id=options.client_id,
        policy=policy,
        read_committed=options.read_committed,
        security=options.security,
        rack=options.rack,
        metadata_max_age_s=DEFAULT_METADATA_MAX_AGE_S if max_age_ms is None else max_age_ms / 1000,
    )
