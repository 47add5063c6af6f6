"""The options of format("kraft"): those of Spark's Kafka source, checked with sentences."""

from __future__ import annotations

import pickle

import pytest

from kraft.spark.connection import BrokerAddress
from kraft.spark.errors import OptionError
from kraft.spark.options import EARLIEST, LATEST, Admission, ByTimestamp, ReadOptions, parse_options
from kraft.spark.security import Security
from partitions.topic_partition import TopicPartition

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def parse(**options: str) -> ReadOptions:
    return parse_options({**SERVERS, **{name.replace("__", "."): value for name, value in options.items()}})


def test_defaults() -> None:
    options = parse(subscribe="orders")
    assert options == ReadOptions(
        bootstrap=(BrokerAddress("127.0.0.1", 9092),),
        topics=("orders",),
        pattern=None,
        partitions=None,
        starting=EARLIEST,
        ending=LATEST,
        columns=("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
        min_partitions=None,
        max_records_per_partition=None,
        max_bytes_per_partition=None,
        admission=Admission(None, None, 15 * 60_000, None),
        fail_on_data_loss=True,
        read_committed=False,
        num_retries=None,
        retry_interval_ms=None,
        poll_timeout_ms=None,
        client_id="kraft-spark",
        rack="",
        metadata_max_age_ms=None,
        group_id_for_lag=None,
        security=Security(),
    )


def test_names_are_compared_without_regard_to_case() -> None:
    options = parse_options(
        {
            "KAFKA.bootstrap.servers": "a:1, [::1]:2",
            "SUBSCRIBEPATTERN": "a.*",
            "includeheaders": "TRUE",
            "MinPartitions": "7",
            "maxrecordsperpartition": "100",
            "kafka.client.id": "Me",
        }
    )
    assert options.bootstrap == (BrokerAddress("a", 1), BrokerAddress("::1", 2))
    assert options.pattern is not None
    assert options.pattern.pattern == "a.*"
    assert (options.columns[-1], options.min_partitions, options.client_id) == ("headers", 7, "Me")
    assert options.max_records_per_partition == 100
    assert str(options.bootstrap[1]) == "[::1]:2"


def test_offsets_and_assignment_are_json_as_in_spark() -> None:
    options = parse(
        assign='{"orders":[1,0,1]}',
        startingOffsets='{"orders":{"0":23,"1":-2}}',
        endingOffsets='{"orders":{"0":-1,"1":9}}',
    )
    zero, one = TopicPartition("orders", 0), TopicPartition("orders", 1)
    assert options.partitions == (one, zero)
    assert options.starting == {zero: 23, one: EARLIEST}
    assert options.ending == {zero: LATEST, one: 9}
    assert pickle.loads(pickle.dumps(options)) == options


def test_times_go_before_offsets_and_one_time_before_many() -> None:
    many = '{"orders":{"0":5}}'
    options = parse(
        subscribe="orders",
        startingTimestamp="1700000000000",
        startingOffsetsByTimestamp=many,
        startingOffsets="earliest",
        endingOffsetsByTimestamp=many,
        endingOffsets="latest",
    )
    assert options.starting == ByTimestamp(1_700_000_000_000, or_latest=False)
    assert options.ending == ByTimestamp({TopicPartition("orders", 0): 5}, or_latest=True)
    options = parse(subscribe="t", startingTimestamp="7", startingOffsetsByTimestampStrategy="LATEST")
    assert options.starting == ByTimestamp(7, or_latest=True)


def test_options_of_streams() -> None:
    given = {
        **SERVERS,
        "subscribe": "t",
        "startingOffsets": '{"t":{"0":-1}}',
        "maxOffsetsPerTrigger": "100",
        "minOffsetsPerTrigger": "10",
        "maxTriggerDelay": "30s",
        "maxBytesPerTrigger": "1000",
    }
    options = parse_options(given, streaming=True)
    assert options.admission == Admission(100, 10, 30_000, 1000)
    assert options.starting == {TopicPartition("t", 0): LATEST}
    assert parse_options({**SERVERS, "subscribe": "t"}, streaming=True).starting == LATEST
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        with pytest.raises(OptionError, match=f"{name} is for batches"):
            parse_options({**given, name: "1"}, streaming=True)


def test_load_refuses_what_neither_a_batch_nor_a_stream_can_be() -> None:
    given = {**SERVERS, "subscribe": "t"}
    for passed in ({"startingOffsets": "latest"}, {"endingOffsets": "latest"}, {"endingOffsets": "earliest"}):
        parse_options({**given, **passed}, streaming=None)
    with pytest.raises(OptionError, match="Unknown option startingoffset"):
        parse_options({**given, "startingOffset": "latest"}, streaming=None)


def test_columns() -> None:
    assert parse(subscribe="t", columns="offset, value").columns == ("offset", "value")
    assert parse(subscribe="t", columns="headers").columns == ("headers",)


def test_what_only_tunes_the_java_client_is_ignored() -> None:
    parse(
        subscribe="t",
        kafka__fetch__max__bytes="1",
        kafka__isolation__level="read_uncommitted",
        kafka__security__protocol="PLAINTEXT",
        groupIdPrefix="x",
        failOnDataLoss="true",
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "none is given"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "subscribe and assign are given"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribePattern": "("}, "not a regular expression"),
        ({"assign": "{}"}, "names no partition"),
        ({"assign": "[1]"}, "assign must be"),
        ({"assign": "{"}, "assign must be"),
        ({"assign": '{"a":0}'}, "assign must be like"),
        ({"assign": '{"a":[true]}'}, "True is not a partition"),
        ({"assign": '{"a":[-1]}'}, "-1 is not a partition"),
        ({"subscribe": "a", "startingOffsets": "latest"}, r"cannot be latest \(-1\)"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, r"cannot be earliest \(-2\)"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":-1}}'}, "a-0 has -1"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":-3}}'}, "-3 is not an offset"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":1.5}}'}, "1.5 is not an offset"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"x":1}}'}, "'x' is not a partition"),
        ({"subscribe": "a", "startingOffsets": '{"a":[0]}'}, "must be like"),
        ({"subscribe": "a", "startingOffsets": "soon"}, "must be earliest, latest or"),
        ({"subscribe": "a", "includeHeaders": "yes"}, "must be true or false"),
        ({"subscribe": "a", "minPartitions": "0"}, "whole number from 1 on"),
        ({"subscribe": "a", "maxRecordsPerPartition": "x"}, "whole number from 1 on"),
        ({"subscribe": "a", "failOnDataLoss": "no"}, "failOnDataLoss must be true or false"),
        ({"subscribePattern": " "}, "subscribePattern is empty"),
        ({"subscribe": "a", "startingTimestamp": "soon"}, "startingTimestamp must be a whole number"),
        ({"subscribe": "a", "startingOffsetsByTimestamp": "1"}, "startingOffsetsByTimestamp must be"),
        ({"subscribe": "a", "endingOffsetsByTimestamp": '{"a":{"0":-1}}'}, "-1 is not a time in ms of a-0"),
        ({"subscribe": "a", "startingOffsetsByTimestampStrategy": "x"}, "must be error or latest"),
        ({"subscribe": "a", "maxTriggerDelay": "1 week"}, "such as 15m"),
        (
            {"subscribe": "a", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "minOffsetsPerTrigger, 9, is higher",
        ),
        ({"subscribe": "a", "columns": "value,values"}, "columns must name some of key, value"),
        ({"subscribe": "a", "columns": "value,value"}, "each once"),
        ({"subscribe": "a", "columns": "value", "includeHeaders": "true"}, "does not name headers"),
        ({"subscribe": "a", "kafka.auto.offset.reset": "latest"}, "auto.offset.reset is not supported"),
        ({"subscribe": "a", "kafka.key.deserializer": "x"}, "keys are bytes"),
        ({"subscribe": "a", "kafka.value.deserializer": "x"}, "values are bytes"),
        ({"subscribe": "a", "kafka.enable.auto.commit": "true"}, "enable.auto.commit is not supported"),
        ({"subscribe": "a", "kafka.interceptor.classes": "x"}, "no Java consumer"),
        ({"subscribe": "a", "startingOffset": "earliest"}, "Unknown option startingoffset"),
        (
            {"subscribe": "a", "kafka.security.protocol": "SASL"},
            "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT",
        ),
        ({"subscribe": "a", "kafka.isolation.level": "serializable"}, "read_uncommitted or read_committed"),
        ({"subscribe": "a", "kafka.bootstrap.servers": "localhost"}, "must be HOST:PORT"),
        ({"subscribe": "a", "kafka.bootstrap.servers": "h:70000"}, "must be HOST:PORT"),
        ({"subscribe": "a", "kafka.bootstrap.servers": " "}, "is missing"),
    ],
)
def test_mistakes_are_answered_with_a_sentence(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        parse_options({**SERVERS, **options})
