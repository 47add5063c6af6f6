"""`df.write.format("kraft")` and `writeStream`: rows to records, through librdkafka.

At least once, as Spark's own Kafka sink: a task's write ends when every record of it is acknowledged by all in-sync
replicas, or fails; Spark then repeats the task, and records that had been written before are written again. Within a
task nothing is lost, doubled or reordered by retries (idempotence). Keys are placed as Java's producer places them
(murmur2). The driver checks columns, options and the address before any task starts; the tasks write. `source.py`
makes the writers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType

from kraft.spark.client import ClusterClient
from kraft.spark.errors import OptionError, WriteFailedError
from kraft.spark.retry import RetryPolicy
from kraft.spark.schema import HEADERS
from kraft.spark.write_options import WriteOptions

_TYPES: dict[str, tuple[DataType, ...]] = {
    "topic": (StringType(),),
    "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()),
    "headers": (HEADERS,),
    "partition": (IntegerType(),),
}
_ANY_PARTITION = -1
_PIECE_BYTES = 1 << 20
_FLUSH_STEP_S = 0.5
_AFTER_DELIVERY_S = 30.0
"""librdkafka ends every record in delivery.timeout.ms; beyond that and this much it is taken for broken."""
_LOGGER = logging.getLogger("kraft.spark.librdkafka")


class Record(NamedTuple):
    """What `Producer.produce` takes."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int
    headers: list[tuple[str, bytes | None]] | None


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not checked
    """How many records a task wrote."""

    records: int


def check_columns(schema: StructType, topic: str | None) -> None:
    """The rules of Spark's own sink; other columns are not written. Raises OptionError."""
    types = {field.name: field.dataType for field in schema.fields}
    if topic is None and "topic" not in types:
        raise OptionError("Give the option topic, or a column topic.")
    if "value" not in types:
        raise OptionError("A column value is needed: name it with .select(… .alias('value')).")
    for name, wanted in _TYPES.items():
        kind = types.get(name)
        if kind is None or (name == "topic" and topic is not None) or _is_one_of(kind, wanted):
            continue
        raise OptionError(
            f"Column {name} has the type {kind.simpleString()}, but must have"
            f" {' or '.join(one.simpleString() for one in wanted)}: cast it."
        )


def _is_one_of(kind: DataType, wanted: Iterable[DataType]) -> bool:
    return kind.simpleString() in {one.simpleString() for one in wanted}


def records(batch: pa.RecordBatch, topic: str | None) -> Iterator[Record]:
    """The rows of a batch in order; `topic`, if given, goes before the column. Raises WriteFailedError.

    Rows become Python objects a piece at a time: an Arrow batch of large values is held once, not twice.
    """
    step = max(1, batch.num_rows * _PIECE_BYTES // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, step):
        yield from _records(batch.slice(start, step), topic)


def _records(batch: pa.RecordBatch, topic: str | None) -> Iterator[Record]:
    count = batch.num_rows
    topics = [topic] * count if topic is not None else batch.column("topic").to_pylist()
    partitions = _column(batch, "partition")
    rows = zip(
        topics,
        _column(batch, "value"),
        _column(batch, "key"),
        partitions,
        _column(batch, "headers"),
        strict=True,
    )
    for name, value, key, partition, headers in rows:
        if name is None:
            raise WriteFailedError(
                "A row has null in the column topic: filter it out, or give the option topic."
            )
        if partition is None:
            partition = _ANY_PARTITION
        elif partition < 0:
            raise WriteFailedError(
                f"A row has {partition} in the column partition: null leaves it to the key."
            )
        yield Record(name, value, key, partition, None if headers is None else _pairs(headers))


def _pairs(headers: list[dict[str, Any] | None]) -> list[tuple[str, bytes | None]]:
    if any(header is None or header["key"] is None for header in headers):
        raise WriteFailedError("A row has a header without a key, which no record can have: filter it out.")
    return [(header["key"], header["value"]) for header in headers if header is not None]


def _column(batch: pa.RecordBatch, name: str) -> list[Any]:
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    column = batch.column(name)
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    values: list[Any] = column.to_pylist()
    return values


class _Delivery:
    """One task's producer. Holds at most its queue in memory and gives up at the first record that fails.

    As a context manager it ends the producer with the task, however that ends: Spark reuses Python workers, so that
    what a failed task had queued would be sent beside the next one's records.
    """

    def __init__(self, options: WriteOptions) -> None:
        from confluent_kafka import KafkaException, Producer

        self._failed: tuple[str, Any] | None = None
        self._wait_s = options.delivery_timeout_ms / 1000 + _AFTER_DELIVERY_S
        try:
            self._producer = Producer(options.producer_properties(), logger=_LOGGER)
        except KafkaException as error:
            raise OptionError(
                f"librdkafka refuses a producer option: {error.args[0].str().strip()}."
            ) from error

    def __enter__(self) -> _Delivery:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.purge()
        self._producer.close()

    def add(self, record: Record) -> None:
        """Waits while the queue is full. Raises WriteFailedError."""
        from confluent_kafka import KafkaException

        headers = {} if record.headers is None else {"headers": record.headers}
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    record.partition,
                    on_delivery=self._on_failure,
                    **headers,
                )
                return
            except BufferError:
                self._producer.poll(_FLUSH_STEP_S)
                self._check()
            except KafkaException as error:
                raise WriteFailedError(f"Topic {record.topic}: {error.args[0].str()}.") from error

    def look(self) -> None:
        """Takes what is known of failures. Raises WriteFailedError."""
        self._producer.poll(0)
        self._check()

    def finish(self) -> None:
        """Returns when every record is acknowledged. Raises WriteFailedError."""
        waited_s = 0.0
        while (left := self._producer.flush(_FLUSH_STEP_S)) and waited_s < self._wait_s:
            waited_s += _FLUSH_STEP_S
            self._check()
        self._check()
        if left:
            raise WriteFailedError(f"{left} records are neither written nor refused after {waited_s:g} s.")

    def _on_failure(self, error: Any, message: Any) -> None:
        if error is not None and self._failed is None:
            self._failed = f"{message.topic()}", error

    def _check(self) -> None:
        if self._failed is None:
            return
        topic, error = self._failed
        raise WriteFailedError(
            f"A record for topic {topic} could not be written: {error.name()}, {error.str()}. Of this task's"
            " records any may have been written; Spark repeats the task if it may."
        )


def write_rows(options: WriteOptions, batches: Iterable[pa.RecordBatch]) -> Written:
    """Writes all rows; returns when they are acknowledged. Raises WriteFailedError, OptionError."""
    count = 0
    with _Delivery(options) as delivery:
        for batch in batches:
            for record in records(batch, options.topic):
                delivery.add(record)
            count += batch.num_rows
            delivery.look()
        delivery.finish()
    return Written(count)


def check_reachable(options: WriteOptions, *, within_s: float = RetryPolicy.first_answer_s) -> None:
    """Raises ClusterUnavailableError, with the addresses, if no broker answers in this time."""
    policy = RetryPolicy(budget_s=within_s, first_answer_s=within_s)
    with ClusterClient(
        options.bootstrap, client_id=options.client_id, policy=policy, security=options.security
    ) as client:
        client.topics([])


class KraftWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark is not checked
    """Of a batch. What failed tasks wrote stays: a log cannot take records back."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(self._options, iterator)


class KraftStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # pyspark is not checked
    """Of a stream. A micro-batch that is repeated is written again."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(self._options, iterator)
