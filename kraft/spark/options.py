"""The options of `spark.read.format("kraft")`, read and checked before anything is asked of a broker.

Names and values are those of Spark's own Kafka source. An unsupported option that would change the result is refused
with a sentence. One that only tunes Kafka's Java client is ignored, so that options can be kept when moving from
format("kafka"). Spark compares the names of options without regard to case. `source.py` calls it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kraft.spark.connection import BrokerAddress
from kraft.spark.errors import OptionError
from partitions.topic_partition import TopicPartition

DEFAULT_CLIENT_ID = "kraft-spark"
LATEST = -1
EARLIEST = -2

_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_OPTIONS = (
    "kafka.bootstrap.servers",
    *_SUBSCRIPTIONS,
    "startingOffsets",
    "endingOffsets",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "kafka.client.id",
)
_KNOWN = frozenset(name.lower() for name in _OPTIONS)
_TUNING = frozenset(
    ("fetchoffset.numretries", "fetchoffset.retryintervalms", "kafkaconsumer.polltimeoutms", "groupidprefix")
)
"""Of Spark's Kafka source: they tune its consumer and change no result."""
_CLIENT_PREFIX = "kafka."
_REFUSED_CLIENT_OPTIONS = ("kafka.sasl.", "kafka.ssl.")
_ONLY_VALUE = MappingProxyType(
    {"kafka.security.protocol": "plaintext", "kafka.isolation.level": "read_uncommitted"}
)
"""Options of Kafka's client that would change what is read: only the default can be honoured."""

OffsetSpec = int | Mapping[TopicPartition, int]
"""LATEST or EARLIEST for every partition, or an offset, LATEST or EARLIEST for each."""


@dataclass(frozen=True)
class ReadOptions:
    """What to read. Exactly one of `topics`, `pattern` and `partitions` is set."""

    bootstrap: tuple[BrokerAddress, ...]
    topics: tuple[str, ...] | None
    pattern: re.Pattern[str] | None
    partitions: tuple[TopicPartition, ...] | None
    starting: OffsetSpec
    ending: OffsetSpec
    include_headers: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    client_id: str


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """Reads the options as Spark hands them over. Raises OptionError."""
    options = {name.lower(): value for name, value in given.items()}
    _check_names(options)
    if options.get("failondataloss", "true").strip().lower() != "true":
        raise OptionError(
            "failOnDataLoss can only be true: this source never skips records that are gone."
            " To read what is left, run the read again."
        )
    topics, pattern, partitions = _subscription(options)
    return ReadOptions(
        bootstrap=_bootstrap(options.get("kafka.bootstrap.servers", "")),
        topics=topics,
        pattern=pattern,
        partitions=partitions,
        starting=_offsets(options, "startingOffsets", default=EARLIEST, refused=LATEST),
        ending=_offsets(options, "endingOffsets", default=LATEST, refused=EARLIEST),
        include_headers=_boolean(options, "includeHeaders"),
        min_partitions=_positive(options, "minPartitions"),
        max_records_per_partition=_positive(options, "maxRecordsPerPartition"),
        client_id=options.get("kafka.client.id") or DEFAULT_CLIENT_ID,
    )


def _check_names(options: Mapping[str, str]) -> None:
    for name, value in options.items():
        if name in _KNOWN or name in _TUNING:
            continue
        if not name.startswith(_CLIENT_PREFIX):
            raise OptionError(f"Unknown option {name}. The options are {', '.join(_OPTIONS)}.")
        if name.startswith(_REFUSED_CLIENT_OPTIONS):
            raise OptionError(f"Option {name} is not supported: the connector speaks PLAINTEXT only.")
        only = _ONLY_VALUE.get(name)
        if only is not None and value.strip().lower() != only:
            raise OptionError(f"Option {name} can only be {only}, not {value!r}.")


def _bootstrap(text: str) -> tuple[BrokerAddress, ...]:
    addresses = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = item.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise OptionError(f"kafka.bootstrap.servers must be HOST:PORT[,HOST:PORT…], not {text!r}.")
        addresses.append(BrokerAddress(host, int(port)))
    if not addresses:
        raise OptionError("Option kafka.bootstrap.servers is missing: give HOST:PORT[,HOST:PORT…].")
    return tuple(addresses)


def _subscription(
    options: Mapping[str, str],
) -> tuple[tuple[str, ...] | None, re.Pattern[str] | None, tuple[TopicPartition, ...] | None]:
    given = [name for name in _SUBSCRIPTIONS if name.lower() in options]
    if len(given) != 1:
        found = "none is" if not given else f"{' and '.join(given)} are"
        raise OptionError(f"Give exactly one of {', '.join(_SUBSCRIPTIONS)}: {found} given.")
    name, text = given[0], options[given[0].lower()]
    if name == "subscribe":
        topics = tuple(dict.fromkeys(filter(None, (topic.strip() for topic in text.split(",")))))
        if not topics:
            raise OptionError("Option subscribe names no topic: give TOPIC[,TOPIC…].")
        return topics, None, None
    if name == "subscribePattern":
        try:
            return None, re.compile(text), None
        except re.error as error:
            raise OptionError(f"subscribePattern is not a regular expression: {error}.") from error
    partitions = tuple(dict.fromkeys(_assigned(text)))
    if not partitions:
        raise OptionError('Option assign names no partition: give {"topic":[0,1]}.')
    return None, None, partitions


def _assigned(text: str) -> Iterator[TopicPartition]:
    for topic, partitions in _json_object("assign", text, '{"topic":[0,1]}').items():
        if not isinstance(partitions, list):
            raise OptionError(f'assign must be like {{"topic":[0,1]}}; {topic} has {partitions!r}.')
        for partition in partitions:
            if not _is_whole_number(partition) or partition < 0:
                raise OptionError(f"assign: {partition!r} is not a partition of {topic}.")
            yield TopicPartition(topic, partition)


def _offsets(options: Mapping[str, str], name: str, *, default: int, refused: int) -> OffsetSpec:
    """A batch cannot start at the end or end at the start, as in Spark's Kafka source."""
    text = options.get(name.lower())
    if text is None:
        return default
    words = {"latest": LATEST, "earliest": EARLIEST}
    word = words.get(text.strip().lower())
    refusal = f"{name} of a batch read cannot be {'latest (-1)' if refused == LATEST else 'earliest (-2)'}."
    if word == refused:
        raise OptionError(refusal)
    if word is not None:
        return word
    offsets: dict[TopicPartition, int] = {}
    form = '{"topic":{"0":23,"1":-2}}'
    for topic, partitions in _json_object(name, text, f"earliest, latest or {form}").items():
        if not isinstance(partitions, dict):
            raise OptionError(f"{name} must be like {form}; {topic} has {partitions!r}.")
        for partition, offset in partitions.items():
            if not partition.isascii() or not partition.isdigit():
                raise OptionError(f"{name}: {partition!r} is not a partition of {topic}.")
            if not _is_whole_number(offset) or offset < EARLIEST:
                raise OptionError(f"{name}: {offset!r} is not an offset of {topic}-{partition}.")
            if offset == refused:
                raise OptionError(f"{refusal} {topic}-{partition} has {offset}.")
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def _json_object(name: str, text: str, form: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise OptionError(f"{name} must be {form}, not {text!r}: {error}.") from error
    if not isinstance(value, dict):
        raise OptionError(f"{name} must be {form}, not {text!r}.")
    return value


def _is_whole_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _boolean(options: Mapping[str, str], name: str) -> bool:
    value = options.get(name.lower(), "false").strip().lower()
    if value not in ("true", "false"):
        raise OptionError(f"{name} must be true or false, not {value!r}.")
    return value == "true"


def _positive(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.strip().isascii() or not text.strip().isdigit() or int(text) < 1:
        raise OptionError(f"{name} must be a whole number above 0, not {text!r}.")
    return int(text)
