"""The options of format("kraft"): those of Spark's Kafka source, checked with sentences."""

from __future__ import annotations

import pickle

import pytest

from kraft.spark.connection import BrokerAddress
from kraft.spark.errors import OptionError
from kraft.spark.options import EARLIEST, LATEST, ReadOptions, parse_options
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
        include_headers=False,
        min_partitions=None,
        max_records_per_partition=None,
        client_id="kraft-spark",
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
    assert (options.include_headers, options.min_partitions, options.client_id) == (True, 7, "Me")
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
        ({"subscribe": "a", "minPartitions": "0"}, "whole number above 0"),
        ({"subscribe": "a", "maxRecordsPerPartition": "x"}, "whole number above 0"),
        ({"subscribe": "a", "failOnDataLoss": "false"}, "can only be true"),
        ({"subscribe": "a", "startingOffset": "earliest"}, "Unknown option startingoffset"),
        ({"subscribe": "a", "kafka.sasl.mechanism": "PLAIN"}, "PLAINTEXT only"),
        ({"subscribe": "a", "kafka.security.protocol": "SSL"}, "can only be plaintext"),
        ({"subscribe": "a", "kafka.isolation.level": "read_committed"}, "can only be read_uncommitted"),
        ({"subscribe": "a", "kafka.bootstrap.servers": "localhost"}, "must be HOST:PORT"),
        ({"subscribe": "a", "kafka.bootstrap.servers": "h:70000"}, "must be HOST:PORT"),
        ({"subscribe": "a", "kafka.bootstrap.servers": " "}, "is missing"),
    ],
)
def test_mistakes_are_answered_with_a_sentence(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        parse_options({**SERVERS, **options})
