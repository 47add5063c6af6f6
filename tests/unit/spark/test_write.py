"""Rows to records, and the options of a write."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from kraft.spark.errors import ClusterUnavailableError, OptionError, WriteFailedError
from kraft.spark.schema import source_schema
from kraft.spark.write_options import WriteOptions, parse_write_options
from kraft.spark.writer import Record, check_columns, check_reachable, records, write_rows

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092, 127.0.0.1:9093"}


def parse(**options: str) -> WriteOptions:
    return parse_write_options(
        {**SERVERS, **{name.replace("__", "."): value for name, value in options.items()}}
    )


def test_properties_are_safe_by_default() -> None:
    options = parse(
        topic=" orders ", kafka__linger__ms="7", kafka__max__request__size="5000", kafka__buffer__memory="1"
    )
    assert pickle.loads(pickle.dumps(options)) == options
    assert options.topic == "orders"
    assert options.producer_properties() == {
        "bootstrap.servers": "127.0.0.1:9092,127.0.0.1:9093",
        "client.id": "kraft-spark",
        "delivery.report.only.error": True,
        "delivery.timeout.ms": 120_000,
        "enable.idempotence": True,
        "linger.ms": "7",
        "message.max.bytes": "5000",
        "security.protocol": "PLAINTEXT",
        "partitioner": "murmur2_random",
        "queue.buffering.max.kbytes": 32 << 10,
    }
    assert parse(topic="t").producer_properties()["message.max.bytes"] == 1 << 20, "as Java's producer"


def test_what_says_the_same_is_taken() -> None:
    parse(topic="t", kafka__acks="-1", kafka__enable__idempotence="TRUE", checkpointLocation="/x")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kafka.acks": "1"}, "kafka.acks can only be all, not '1'"),
        ({"kafka.enable.idempotence": "false"}, "can only be true"),
        ({"kafka.key.serializer": "x"}, "keys are strings or bytes"),
        ({"kafka.value.serializer": "x"}, "values are strings or bytes"),
        ({"kafka.partitioner.class": "x"}, "a column `partition`"),
        ({"kafka.transactional.id": "x"}, "at least once"),
        ({"kafka.sasl.jaas.config": "secret"}, "set kafka.security.protocol to SASL"),
        ({"kafka.delivery.timeout.ms": "soon"}, "time in ms above 0"),
        ({"kafka.bootstrap.servers": ""}, "is missing"),
        ({"topic": " "}, "topic is empty"),
        ({"topics": "x"}, "Unknown option topics"),
        ({"transactional": "true"}, "no exactly-once sink.*at least once.*as headers.*kraft ingest"),
        ({"transactional": "yes"}, "can only be false, not 'yes'"),
    ],
)
def test_mistakes_are_answered_with_a_sentence(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence) as refused:
        parse_write_options({**SERVERS, "topic": "t", **options})
    assert "secret" not in str(refused.value)


def test_what_librdkafka_refuses_is_a_sentence() -> None:
    options = parse(topic="t", kafka__linger__ms="x")
    with pytest.raises(OptionError, match="librdkafka refuses a producer option"):
        write_rows(options, [])


def test_a_wrong_address_fails_the_write() -> None:
    options = parse_write_options(
        {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "kafka.delivery.timeout.ms": "500"}
    )
    batch = pa.RecordBatch.from_pydict({"value": [b"x"]})
    with pytest.raises(WriteFailedError, match="A record for topic t could not be written: _MSG_TIMED_OUT"):
        write_rows(options, [batch])


def test_a_task_that_fails_leaves_no_producer_behind() -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": [b"x"] * 10_000})
        raise RuntimeError("the rows end here")

    options = parse_write_options({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"})
    with pytest.raises(RuntimeError, match="the rows end here") as failed:
        write_rows(options, rows())
    assert failed.tb is not None, "the traceback keeps every local alive"
    assert [name for name in threads() if name.startswith("rdk:")] == []


def threads() -> list[str]:
    return [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]


def test_nobody_at_the_address_is_told_before_a_task_starts() -> None:
    with pytest.raises(ClusterUnavailableError, match=r"No broker answers \(127.0.0.1:1: .*refused"):
        check_reachable(
            parse_write_options({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}), within_s=0.1
        )


def test_rows_become_records() -> None:
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(["ä", None, "c"], pa.string()),
            pa.array([b"k", None, b""], pa.binary()),
            pa.array(["one", "two", "two"], pa.string()),
            pa.array([None, 4, 0], pa.int32()),
            pa.array(
                [[{"key": "h", "value": None}, {"key": "h", "value": b"2"}], None, []], pa.list_(header)
            ),
            pa.array([1, 2, 3]),
        ],
        names=["value", "key", "topic", "partition", "headers", "ignored"],
    )
    assert list(records(batch, None)) == [
        Record("one", "ä".encode(), b"k", -1, [("h", None), ("h", b"2")]),
        Record("two", None, None, 4, None),
        Record("two", b"c", b"", 0, []),
    ]
    assert {record.topic for record in records(batch, "given")} == {"given"}
    assert next(records(batch.select(["value"]), "t")) == Record("t", "ä".encode(), None, -1, None)


def test_rows_that_cannot_be_written() -> None:
    values = pa.array([b"x"], pa.binary())
    nameless = pa.RecordBatch.from_arrays([values, pa.array([None], pa.string())], names=["value", "topic"])
    with pytest.raises(WriteFailedError, match="null in the column topic"):
        list(records(nameless, None))
    negative = pa.RecordBatch.from_arrays([values, pa.array([-1], pa.int32())], names=["value", "partition"])
    with pytest.raises(WriteFailedError, match="has -1 in the column partition"):
        list(records(negative, "t"))


def test_large_rows_are_taken_a_piece_at_a_time() -> None:
    values = [bytes([number]) * 700_000 for number in range(5)]
    batch = pa.RecordBatch.from_pydict({"value": values, "key": [b"%d" % number for number in range(5)]})
    assert [(one.key, one.value) for one in records(batch.slice(1, 3), "t")] == [
        (b"%d" % number, values[number]) for number in (1, 2, 3)
    ]
    assert list(records(batch.slice(0, 0), "t")) == []


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"1"}])
def test_a_header_without_a_key(header: dict[str, bytes | None] | None) -> None:
    kind = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"x"]), pa.array([[header]], kind)], names=["value", "headers"]
    )
    with pytest.raises(WriteFailedError, match="a header without a key"):
        list(records(batch, "t"))


def schema(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


@pytest.mark.parametrize(
    ("columns", "topic", "sentence"),
    [
        (schema(value=StringType()), None, "Give the option topic"),
        (schema(key=StringType()), "t", "A column value is needed"),
        (schema(value=IntegerType()), "t", "value has the type int, but must have string or binary"),
        (schema(value=StringType(), key=LongType()), "t", "key has the type bigint"),
        (schema(value=StringType(), topic=IntegerType()), None, "topic has the type int"),
        (
            schema(value=StringType(), partition=LongType()),
            "t",
            "partition has the type bigint, but must have int",
        ),
        (
            schema(value=StringType(), headers=ArrayType(StringType())),
            "t",
            "headers has the type array<string>",
        ),
    ],
)
def test_columns_that_do_not_fit(columns: StructType, topic: str | None, sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        check_columns(columns, topic)


def test_columns_that_fit() -> None:
    check_columns(schema(value=StringType(), topic=IntegerType(), other=LongType()), "t")
    check_columns(source_schema(("key", "value", "topic", "partition", "headers")), None)
