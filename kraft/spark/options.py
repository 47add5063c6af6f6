"""The options of `read` and `readStream` of format("kraft"), checked before anything is asked of a broker.

Names, values and precedence are those of Spark's own Kafka source, and what it refuses is refused. An unsupported
option that would change the result is refused with a sentence. One that only tunes Kafka's Java client is ignored, so
that options can be kept when moving from format("kafka"). Spark compares the names of options without regard to case.
`source.py` calls it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kraft.spark.columns import COLUMN_NAMES, HEADERS
from kraft.spark.connection import BrokerAddress
from kraft.spark.errors import OptionError
from kraft.spark.security import Security, parse_security
from partitions.topic_partition import TopicPartition

DEFAULT_CLIENT_ID = "kraft-spark"
LATEST = -1
EARLIEST = -2
DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60_000

_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_OF_BATCHES = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
OPTIONS_OF_STREAMS = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "groupIdForLag",
)
_OPTIONS = (
    "kafka.bootstrap.servers",
    "path",
    *_SUBSCRIPTIONS,
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    *_OF_BATCHES,
    "includeHeaders",
    "columns",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxBytesPerPartition",
    *OPTIONS_OF_STREAMS,
    "failOnDataLoss",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "groupIdPrefix",
    "kafka.client.id",
    "kafka.client.rack",
    "kafka.metadata.max.age.ms",
    "kafka.isolation.level",
    "kafka.security.protocol",
    "kafka.sasl.mechanism",
    "kafka.sasl.jaas.config",
)
_KNOWN = frozenset(name.lower() for name in _OPTIONS)
_CLIENT_PREFIX = "kafka."
_REFUSED = MappingProxyType(
    {
        "kafka.auto.offset.reset": "say where to begin with startingOffsets",
        "kafka.key.deserializer": "keys are bytes; cast the column",
        "kafka.value.deserializer": "values are bytes; cast the column",
        "kafka.enable.auto.commit": "offsets live in the plan of a batch and in the checkpoint of a stream",
        "kafka.interceptor.classes": "there is no Java consumer to intercept",
    }
)
"""What Spark's own source refuses too, and what to do instead."""
_UNITS_MS = MappingProxyType(
    {"us": 0.001, "ms": 1, "": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
)


@dataclass(frozen=True)
class ByTimestamp:
    """The first offset whose record is of this time (ms since 1970) or later, of all partitions or each its own."""

    timestamps: int | Mapping[TopicPartition, int]
    or_latest: bool
    """Where no record is so late: the partition's end. Else that is an error."""


OffsetSpec = int | Mapping[TopicPartition, int] | ByTimestamp
"""LATEST or EARLIEST for every partition, an offset, LATEST or EARLIEST for each, or times."""


@dataclass(frozen=True)
class Admission:
    """How much a micro-batch of a stream takes; None: no limit."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = DEFAULT_MAX_TRIGGER_DELAY_MS
    """After so long a batch runs with fewer than `min_offsets`."""
    max_bytes: int | None = None


@dataclass(frozen=True)
class ReadOptions:
    """What to read. Exactly one of `topics`, `pattern` and `partitions` is set."""

    bootstrap: tuple[BrokerAddress, ...]
    topics: tuple[str, ...] | None
    pattern: re.Pattern[str] | None
    partitions: tuple[TopicPartition, ...] | None
    starting: OffsetSpec
    ending: OffsetSpec
    columns: tuple[str, ...]
    min_partitions: int | None
    max_records_per_partition: int | None
    max_bytes_per_partition: int | None
    admission: Admission
    fail_on_data_loss: bool
    read_committed: bool
    num_retries: int | None
    """How often the driver asks for offsets before it gives up; None: only time bounds it."""
    retry_interval_ms: int | None
    poll_timeout_ms: int | None
    """How long an executor waits for records without progress; None: the policy's budget."""
    client_id: str
    rack: str
    """Where the job runs, for the brokers to name replicas nearby; empty: nowhere in particular."""
    metadata_max_age_ms: int | None
    """After so long a leader is asked again which replica is near; None: the client's default."""
    group_id_for_lag: str | None
    """The group that a stream reports its offsets to."""
    security: Security
    path: tuple[str, ...] = ()
    """Data directories of stopped brokers to read instead of a cluster; `bootstrap` is empty then."""


def known_options() -> tuple[str, ...]:
    """The names, but for those of kafka.ssl; others that begin with kafka. are taken and have no effect."""
    return _OPTIONS


def parse_options(given: Mapping[str, str], *, streaming: bool | None = False) -> ReadOptions:
    """Reads the options as Spark hands them over. Raises OptionError.

    `streaming` is None at `load()`, which does not know yet: what only one of the two refuses passes.
    """
    options = {name.lower(): value for name, value in given.items()}
    check_names(options)
    if streaming:
        for name in _OF_BATCHES:
            if name.lower() in options:
                raise OptionError(f"Option {name} is for batches: a stream has no end.")
    topics, pattern, partitions = _subscription(options)
    path = _path(options, streaming=streaming)
    return ReadOptions(
        bootstrap=() if path else parse_bootstrap(options.get("kafka.bootstrap.servers", "")),
        path=path,
        topics=topics,
        pattern=pattern,
        partitions=partitions,
        starting=_limit(options, "starting", default=LATEST if streaming else EARLIEST, streaming=streaming),
        ending=_limit(options, "ending", default=LATEST, streaming=streaming),
        columns=_columns(given),
        min_partitions=_whole_number(options, "minPartitions", at_least=1),
        max_records_per_partition=_whole_number(options, "maxRecordsPerPartition", at_least=1),
        max_bytes_per_partition=_whole_number(options, "maxBytesPerPartition", at_least=1),
        admission=_admission(options),
        fail_on_data_loss=_boolean(options, "failOnDataLoss", default=True),
        read_committed=_word(options, "kafka.isolation.level", ("read_uncommitted", "read_committed"))
        == "read_committed",
        num_retries=_whole_number(options, "fetchOffset.numRetries", at_least=1),
        retry_interval_ms=_whole_number(options, "fetchOffset.retryIntervalMs", at_least=0),
        poll_timeout_ms=_whole_number(options, "kafkaConsumer.pollTimeoutMs", at_least=1),
        client_id=options.get("kafka.client.id") or DEFAULT_CLIENT_ID,
        rack=options.get("kafka.client.rack", "").strip(),
        metadata_max_age_ms=_whole_number(options, "kafka.metadata.max.age.ms", at_least=0),
        group_id_for_lag=options.get("groupidforlag", "").strip() or None,
        security=parse_security(options),
    )


def _path(options: Mapping[str, str], *, streaming: bool | None) -> tuple[str, ...]:
    """The data directories to read; empty: a cluster is read."""
    if "path" not in options:
        return ()
    directories = tuple(filter(None, (part.strip() for part in options["path"].split(","))))
    if not directories:
        raise OptionError(
            "Option path is empty: give DIR[,DIR…], data directories (log.dirs) of stopped brokers."
        )
    if "kafka.bootstrap.servers" in options:
        raise OptionError(
            "Give path, to read the data directories of stopped brokers, or kafka.bootstrap.servers, to read from"
            " running ones: not both."
        )
    if streaming:
        raise OptionError(
            "Option path is for batches: stopped brokers write nothing. Give kafka.bootstrap.servers."
        )
    return directories


def _columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of the rows, in order: all but `headers`, all (`includeHeaders`), or those of `columns`."""
    options = {name.lower(): value for name, value in given.items()}
    include_headers = _boolean(options, "includeHeaders", default=False)
    text = options.get("columns")
    if text is None:
        return tuple(name for name in COLUMN_NAMES if include_headers or name != HEADERS)
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in COLUMN_NAMES]
    if unknown or len(set(names)) < len(names):
        raise OptionError(f"columns must name some of {', '.join(COLUMN_NAMES)}, each once, not {text!r}.")
    if include_headers and HEADERS not in names:
        raise OptionError("includeHeaders is true, but columns does not name headers: leave one of them out.")
    return tuple(names)


def check_names(options: Mapping[str, str]) -> None:
    """Refuses what is unknown, and what would change the result and is not done. Raises OptionError.

    `options` have lower-case names. `security.py` has a word in those of security.
    """
    for name in options:
        if name in _KNOWN:
            continue
        if not name.startswith(_CLIENT_PREFIX):
            raise OptionError(f"Unknown option {name}. The options are {', '.join(_OPTIONS)}.")
        if name in _REFUSED:
            raise OptionError(f"Option {name} is not supported: {_REFUSED[name]}.")


def parse_bootstrap(text: str) -> tuple[BrokerAddress, ...]:
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
            return None, re.compile(_given(text, "subscribePattern", "an expression")), None
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


def _given(text: str, name: str, what: str) -> str:
    if not text.strip():
        raise OptionError(f"Option {name} is empty: give {what}.")
    return text.strip()


def _limit(options: Mapping[str, str], side: str, *, default: int, streaming: bool | None) -> OffsetSpec:
    """Where to start or end. One time for all goes before times by partition, and these before offsets."""
    strategy = _word(options, "startingOffsetsByTimestampStrategy", ("error", "latest"))
    or_latest = side == "ending" or strategy == "latest"
    name = f"{side}Timestamp"
    if name.lower() in options:
        timestamp = _whole_number(options, name, at_least=0)
        assert timestamp is not None
        return ByTimestamp(timestamp, or_latest)
    name = f"{side}OffsetsByTimestamp"
    if name.lower() in options:
        form = '{"topic":{"0":1700000000000}}'
        timestamps = _by_partition(name, options[name.lower()], form, form)
        for partition, timestamp in timestamps.items():
            if timestamp < 0:
                raise OptionError(f"{name}: {timestamp} is not a time in ms of {partition}.")
        return ByTimestamp(timestamps, or_latest)
    return _offsets(options, f"{side}Offsets", default=default, refused=_refused_offset(side, streaming))


def _refused_offset(side: str, streaming: bool | None) -> int | None:
    """A batch cannot start at the end or end at the start, as in Spark's Kafka source."""
    if streaming is not False:
        return None
    return LATEST if side == "starting" else EARLIEST


def _offsets(
    options: Mapping[str, str], name: str, *, default: int, refused: int | None
) -> int | Mapping[TopicPartition, int]:
    text = options.get(name.lower())
    if text is None:
        return default
    words = {"latest": LATEST, "earliest": EARLIEST}
    word = words.get(text.strip().lower())
    refusal = f"{name} of a batch read cannot be {'latest (-1)' if refused == LATEST else 'earliest (-2)'}."
    if word is not None:
        if word == refused:
            raise OptionError(refusal)
        return word
    form = '{"topic":{"0":23,"1":-2}}'
    offsets = _by_partition(name, text, form, f"earliest, latest or {form}")
    for partition, offset in offsets.items():
        if offset < EARLIEST:
            raise OptionError(f"{name}: {offset} is not an offset of {partition}.")
        if offset == refused:
            raise OptionError(f"{refusal} {partition} has {offset}.")
    return offsets


def _by_partition(name: str, text: str, form: str, forms: str) -> dict[TopicPartition, int]:
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in _json_object(name, text, forms).items():
        if not isinstance(partitions, dict):
            raise OptionError(f"{name} must be like {form}; {topic} has {partitions!r}.")
        for partition, number in partitions.items():
            if not partition.isascii() or not partition.isdigit():
                raise OptionError(f"{name}: {partition!r} is not a partition of {topic}.")
            if not _is_whole_number(number):
                what = "a time in ms" if name.endswith("ByTimestamp") else "an offset"
                raise OptionError(f"{name}: {number!r} is not {what} of {topic}-{partition}.")
            numbers[TopicPartition(topic, int(partition))] = number
    return numbers


def _admission(options: Mapping[str, str]) -> Admission:
    limits = Admission(
        max_offsets=_whole_number(options, "maxOffsetsPerTrigger", at_least=1),
        min_offsets=_whole_number(options, "minOffsetsPerTrigger", at_least=1),
        max_delay_ms=_duration_ms(options, "maxTriggerDelay", default=DEFAULT_MAX_TRIGGER_DELAY_MS),
        max_bytes=_whole_number(options, "maxBytesPerTrigger", at_least=1),
    )
    if limits.min_offsets is not None and limits.min_offsets > (limits.max_offsets or limits.min_offsets):
        raise OptionError(
            f"minOffsetsPerTrigger, {limits.min_offsets}, is higher than maxOffsetsPerTrigger, {limits.max_offsets}."
        )
    return limits


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


def _boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = options.get(name.lower(), str(default)).strip().lower()
    if value not in ("true", "false"):
        raise OptionError(f"{name} must be true or false, not {value!r}.")
    return value == "true"


def _word(options: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    """One of the words; the first is the default."""
    value = options.get(name.lower(), words[0]).strip().lower()
    if value not in words:
        raise OptionError(f"{name} must be {' or '.join(words)}, not {value!r}.")
    return value


def _whole_number(options: Mapping[str, str], name: str, *, at_least: int) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    digits = text.strip()
    if not digits.isascii() or not digits.isdigit() or not at_least <= int(digits) < 2**63:
        raise OptionError(f"{name} must be a whole number from {at_least} on, not {text!r}.")
    return int(digits)


def _duration_ms(options: Mapping[str, str], name: str, *, default: int) -> int:
    """A time as Spark writes it: `15m`, `30s`, `500ms`; without a unit milliseconds."""
    text = options.get(name.lower())
    if text is None:
        return default
    found = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", text.strip().lower())
    if found is None or found[2] not in _UNITS_MS:
        raise OptionError(f"{name} must be a time such as 15m, 30s or 500ms, not {text!r}.")
    return int(int(found[1]) * _UNITS_MS[found[2]])
