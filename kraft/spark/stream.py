"""`spark.readStream.format("kraft")`: Spark's side of a stream.

Spark makes one reader in a Python process beside the driver, asks it where the next micro-batch ends and how it is
split, and keeps the answers in the checkpoint. Executors read the slices with copies of their own (`slice_reader.py`);
nothing is shared. What is decided, `stream_plan.py` decides. An exception here ends the query, so that leader changes
are ridden out inside. Continuous and real-time mode are not offered. `source.py` calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kraft.spark.client import ClusterClient
from kraft.spark.data_loss import RESTART_STREAM, LossPolicy
from kraft.spark.lag_group import LAG_BUDGET_S, LagGroup
from kraft.spark.options import ReadOptions, parse_options
from kraft.spark.reading import driver_client, read_slice
from kraft.spark.schema import check_schema
from kraft.spark.stream_offsets import StreamOffset, from_json, to_json
from kraft.spark.stream_plan import StreamPlanner
from kraft.spark.stream_wait import NewsWatch
from partitions.topic_partition import TopicPartition


class KraftStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # pyspark
    """Options are read when they are first needed: what a constructor raises Spark covers with a fault of its own."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._given = dict(given)
        self._schema = schema
        self._available_now = False

    # ---- in the driver

    def initialOffset(self) -> dict[str, Any]:
        return to_json(self._planner.initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark hands it back to `latestOffset`, or ReadAllAvailable instead; what it says the options say too."""
        limits = self._options.admission
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        if limits.min_offsets is not None:
            return ReadMinRows(limits.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._available_now = True
        self._planner.freeze()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Waits a little when there is nothing to read: Spark asks again at once."""
        at = from_json(start)
        unlimited = isinstance(limit, ReadAllAvailable)
        end = self._planner.next(at, unlimited=unlimited)
        if end is at and not self._available_now:
            self._watch.wait(self._ends(at))
            end = self._planner.next(at, unlimited=unlimited)
        return start if end is at else to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        ends: dict[str, dict[str, int]] = {}
        for partition, end in sorted(self._planner.latest_ends.items()):
            ends.setdefault(partition.topic, {})[str(partition.partition)] = end
        return ends or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(part) for part in self._planner.slices(from_json(start), from_json(end))]

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has finished the batch that ends here, and has planned the next."""
        if self._lag_group is not None:
            self._lag_group.commit(from_json(end))

    def stop(self) -> None:
        """Idempotent; Spark may leave it out."""
        if "_client" in vars(self):
            self._watch.close()
            self._client.close()
        if "_client_for_lag" in vars(self):
            self._client_for_lag.close()

    # ---- in the executors

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from read_slice(self._options, self._loss, partition.value)

    # ----

    def _ends(self, at: StreamOffset) -> dict[TopicPartition, tuple[bytes, int]]:
        """What is known to be there, read or held up."""
        known = self._planner.latest_ends
        return {
            partition: (topic.topic_id, known.get(partition, position.offset))
            for name, topic in at.items()
            for index, position in topic.partitions.items()
            for partition in (TopicPartition(name, index),)
        }

    @cached_property
    def _options(self) -> ReadOptions:
        options = parse_options(self._given, streaming=True)
        check_schema(self._schema, options.columns)
        return options

    @cached_property
    def _loss(self) -> LossPolicy:
        return LossPolicy(fail=self._options.fail_on_data_loss, advice=RESTART_STREAM)

    @cached_property
    def _client(self) -> ClusterClient:
        return driver_client(self._options)

    @cached_property
    def _planner(self) -> StreamPlanner:
        return StreamPlanner(self._client, self._options, self._loss)

    @cached_property
    def _client_for_lag(self) -> ClusterClient:
        """Not the other's, so that a commit waits less long than a batch."""
        return driver_client(self._options, budget_s=LAG_BUDGET_S)

    @cached_property
    def _lag_group(self) -> LagGroup | None:
        group_id = self._options.group_id_for_lag
        if group_id is None:
            return None
        return LagGroup(self._client_for_lag, group_id)

    @cached_property
    def _watch(self) -> NewsWatch:
        return NewsWatch(self._client)
