"""A log's configuration, and the table of topic configuration keys that it honours.

Guarantees: every value that is accepted for a key in `TOPIC_CONFIGS` is obeyed; a key that is not there is
refused, not ignored. The controller validates topic configurations against the table, DescribeConfigs lists
it, and the replica manager builds each log's `LogConfig` from the server's defaults and the topic's overrides.
Names, units, defaults and ranges are Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final

from partitions.log.config_values import (
    INT_MAX,
    LONG_MAX,
    ConfigValue,
    boolean,
    choice,
    cleanup_policy,
    fraction,
    gzip_level,
    integer,
    whole_number,
)
from partitions.log.errors import InvalidConfig
from partitions.quota_replicas import throttled_replicas

_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000

LOG_APPEND_TIME: Final = "LogAppendTime"
CREATE_TIME: Final = "CreateTime"
PRODUCER_CODEC: Final = "producer"
"""`compression.type` of a topic whose batches stay as their producer compressed them."""
UNCOMPRESSED: Final = "uncompressed"


@dataclass(frozen=True, slots=True)
class LogConfig:
    """What one log goes by. Sizes in bytes, times in ms; -1 means no limit for retention."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 168 * _HOUR_MS
    segment_jitter_ms: int = 0
    index_size_max_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1024 * 1024 + 12
    message_timestamp_type: str = CREATE_TIME
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = _HOUR_MS
    compression_type: str = PRODUCER_CODEC
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    file_delete_delay_ms: int = _MINUTE_MS
    retention_ms: int = 168 * _HOUR_MS
    retention_bytes: int = -1
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    preallocate: bool = False
    cleanup_policy: str = "delete"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    delete_retention_ms: int = 24 * _HOUR_MS
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    leader_throttled_replicas: str = ""
    follower_throttled_replicas: str = ""

    # What follows from the above is asked at every append, so it is worked out once.

    is_compacted: bool = field(init=False, repr=False, compare=False)
    """Whether only the last record of each key has to be kept: every record needs a key then."""
    deletes: bool = field(init=False, repr=False, compare=False)
    """Whether old segments go by age and size."""
    max_segment_ms: int = field(init=False, repr=False, compare=False)
    """The age at which a segment is closed: what is active is not compacted."""
    earliest_roll_ms: int = field(init=False, repr=False, compare=False)
    """The age at which a segment may be closed, if all of segment.jitter.ms is taken off its time."""
    flushes: bool = field(init=False, repr=False, compare=False)
    """Whether the log is flushed after so many records or so long, and not only at checkpoints."""
    opens_every_batch: bool = field(init=False, repr=False, compare=False)
    """Whether a leader looks into every batch (each that is not in the topic's codec)."""

    def __post_init__(self) -> None:
        policies = self.cleanup_policy.split(",")
        is_compacted = "compact" in policies
        max_segment_ms = self.segment_ms
        if is_compacted:
            max_segment_ms = min(max_segment_ms, self.max_compaction_lag_ms)
        derived: dict[str, object] = {
            "is_compacted": is_compacted,
            "deletes": "delete" in policies,
            "max_segment_ms": max_segment_ms,
            "earliest_roll_ms": max_segment_ms - min(self.segment_jitter_ms, max_segment_ms),
            "flushes": self.flush_messages != LONG_MAX or self.flush_ms != LONG_MAX,
            "opens_every_batch": is_compacted
            or self.compression_type != PRODUCER_CODEC
            or self.message_timestamp_before_max_ms != LONG_MAX,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def with_overrides(self, overrides: Mapping[str, str]) -> LogConfig:
        """This configuration with a topic's own values. Raises InvalidConfig."""
        if not overrides:
            return self  # as of most topics, once for each of their partitions
        changes: dict[str, object] = {}
        for key, text in overrides.items():
            changes[topic_config_key(key).field] = parse_topic_config(key, text)
        return replace(self, **changes)  # type: ignore[arg-type]  # typed by the table's parsers

    def value_of(self, key: str) -> str:
        """The effective value of a topic configuration key, as DescribeConfigs shows it."""
        value: object = getattr(self, topic_config_key(key).field)
        return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class TopicConfigKey:
    """One key: its name, its type as DescribeConfigs names it, and where its default comes from.

    `field` is the attribute of LogConfig, `synonym` the key in server.properties that sets the
    default for all topics, empty if only topics themselves have it; `parse` turns text into the value
    or raises ValueError with a sentence.
    """

    name: str
    type: str
    field: str
    synonym: str
    doc: str
    parse: Callable[[str], ConfigValue]

    @property
    def default(self) -> ConfigValue:
        """Kafka's default, for a server that sets nothing."""
        value: ConfigValue = getattr(_BUILT_IN, self.field)
        return value


_BUILT_IN: Final = LogConfig()


_KEYS: Final = (
    TopicConfigKey(
        "cleanup.policy", "list", "cleanup_policy", "log.cleanup.policy",
        "What becomes of old records: delete removes segments by age and size, compact keeps the last value of each"
        " key; both may be set. Where it is empty, records go by DeleteRecords alone.",
        cleanup_policy,
    ),
    TopicConfigKey(
        "compression.gzip.level", "int", "compression_gzip_level", "compression.gzip.level",
        "The level at which the broker compresses where compression.type is gzip; -1 for the library's own.",
        gzip_level,
    ),
    TopicConfigKey(
        "compression.lz4.level", "int", "compression_lz4_level", "compression.lz4.level",
        "The level at which the broker compresses where compression.type is lz4; 9 is the fast compressor.",
        integer(1, 17),
    ),
    TopicConfigKey(
        "compression.type", "string", "compression_type", "compression.type",
        "The codec that batches are stored in; producer leaves them as they come.",
        choice("uncompressed", "zstd", "lz4", "snappy", "gzip", PRODUCER_CODEC),
    ),
    TopicConfigKey(
        "compression.zstd.level", "int", "compression_zstd_level", "compression.zstd.level",
        "The level at which the broker compresses where compression.type is zstd.",
        integer(-131072, 22),
    ),
    TopicConfigKey(
        "delete.retention.ms", "long", "delete_retention_ms", "log.cleaner.delete.retention.ms",
        "How long a compacted topic keeps a record without a value, which deletes its key, once it has been cleaned.",
        integer(0, LONG_MAX),
    ),
    TopicConfigKey(
        "file.delete.delay.ms", "long", "file_delete_delay_ms", "log.segment.delete.delay.ms",
        "How long a file that was given up stays, renamed, before it is removed.",
        integer(0, LONG_MAX),
    ),
    TopicConfigKey(
        "flush.messages", "long", "flush_messages", "log.flush.interval.messages",
        "How many records that are not on disk yet make a flush of the log due: whoever is to count, read or"
        " acknowledge the record that did waits for it. With 1 no power loss takes what was acknowledged.",
        integer(1, LONG_MAX),
    ),
    TopicConfigKey(
        "flush.ms", "long", "flush_ms", "log.flush.interval.ms",
        "How long a record may wait before a flush of the log begins. Nobody waits for that flush.",
        integer(0, LONG_MAX),
    ),
    TopicConfigKey(
        "follower.replication.throttled.replicas", "list", "follower_throttled_replicas", "",
        "Replicas that are copied within follower.replication.throttled.rate of their broker: partition:broker,… or *.",
        throttled_replicas,
    ),
    TopicConfigKey(
        "index.interval.bytes", "int", "index_interval_bytes", "log.index.interval.bytes",
        "Bytes of log between two entries of the offset index.",
        integer(0, INT_MAX),
    ),
    TopicConfigKey(
        "leader.replication.throttled.replicas", "list", "leader_throttled_replicas", "",
        "Leaders that send to followers out of sync within leader.replication.throttled.rate of their broker:"
        " partition:broker,… or *.",
        throttled_replicas,
    ),
    TopicConfigKey(
        "max.compaction.lag.ms", "long", "max_compaction_lag_ms", "log.cleaner.max.compaction.lag.ms",
        "The longest time that a record of a compacted topic waits for its cleaning.",
        integer(1, LONG_MAX),
    ),
    TopicConfigKey(
        "max.message.bytes", "int", "max_message_bytes", "message.max.bytes",
        "The largest record batch that is accepted.",
        integer(0, INT_MAX),
    ),
    TopicConfigKey(
        "message.timestamp.after.max.ms", "long", "message_timestamp_after_max_ms",
        "log.message.timestamp.after.max.ms",
        "How far a record's timestamp may lie after the broker's clock, unless it is that of the append.",
        integer(0, LONG_MAX),
    ),
    TopicConfigKey(
        "message.timestamp.before.max.ms", "long", "message_timestamp_before_max_ms",
        "log.message.timestamp.before.max.ms",
        "How far a record's timestamp may lie before the broker's clock, unless it is that of the append.",
        integer(0, LONG_MAX),
    ),
    TopicConfigKey(
        "message.timestamp.type", "string", "message_timestamp_type", "log.message.timestamp.type",
        "Whether a record carries the time of its creation or that of its append.",
        choice(CREATE_TIME, LOG_APPEND_TIME),
    ),
    TopicConfigKey(
        "min.cleanable.dirty.ratio", "double", "min_cleanable_dirty_ratio", "log.cleaner.min.cleanable.ratio",
        "How much of a compacted log must be new since its last cleaning for the next one.",
        fraction,
    ),
    TopicConfigKey(
        "min.compaction.lag.ms", "long", "min_compaction_lag_ms", "log.cleaner.min.compaction.lag.ms",
        "The shortest time that a record of a compacted topic stays even if a newer one has its key.",
        integer(0, LONG_MAX),
    ),
    TopicConfigKey(
        "min.insync.replicas", "int", "min_insync_replicas", "min.insync.replicas",
        "How many replicas must be in sync for a write with acks=all to be accepted.",
        integer(1, INT_MAX),
    ),
    TopicConfigKey(
        "preallocate", "boolean", "preallocate", "log.preallocate",
        "Whether a new segment's file takes room on the disk for segment.bytes at once, and gives back what it does"
        " not need when it is closed. The file's length stays that of its records.",
        boolean,
    ),
    TopicConfigKey(
        "retention.bytes", "long", "retention_bytes", "log.retention.bytes",
        "How large a partition's log may grow before old segments are deleted; -1 for no limit.",
        integer(-1, LONG_MAX),
    ),
    TopicConfigKey(
        "retention.ms", "long", "retention_ms", "log.retention.ms",
        "How old a segment's newest record may grow before the segment is deleted; -1 for no limit.",
        integer(-1, LONG_MAX),
    ),
    TopicConfigKey(
        "segment.bytes", "int", "segment_bytes", "log.segment.bytes",
        "The size at which a segment file is closed and a new one begun.",
        integer(14, INT_MAX),
    ),
    TopicConfigKey(
        "segment.index.bytes", "int", "index_size_max_bytes", "log.index.size.max.bytes",
        "The size of an index at which its segment is closed and a new one begun.",
        integer(12, INT_MAX),
    ),
    TopicConfigKey(
        "segment.jitter.ms", "long", "segment_jitter_ms", "log.roll.jitter.ms",
        "By how much earlier than segment.ms a segment may be closed, so that not all are at one time.",
        integer(0, LONG_MAX),
    ),
    TopicConfigKey(
        "segment.ms", "long", "segment_ms", "log.roll.ms",
        "The age at which a segment is closed at the next append even if it is not full.",
        integer(1, LONG_MAX),
    ),
    TopicConfigKey(
        "unclean.leader.election.enable", "boolean", "unclean_leader_election_enable",
        "unclean.leader.election.enable",
        "Whether a replica that is not in sync may become leader, at the price of lost records.",
        boolean,
    ),
)  # fmt: skip

TOPIC_CONFIGS: Final[Mapping[str, TopicConfigKey]] = {key.name: key for key in _KEYS}
"""The keys by name, in alphabetical order."""

_COARSER_SYNONYMS: Final = {
    "log.retention.ms": (("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)),
    "log.roll.ms": (("log.roll.hours", _HOUR_MS),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", _HOUR_MS),),
    "log.flush.interval.ms": (("log.flush.scheduler.interval.ms", 1),),
}
"""Server keys, most in coarser units, that count only where the finer or closer one is not set."""


def topic_config_key(name: str) -> TopicConfigKey:
    """The table's entry. Raises InvalidConfig for a key that is not honoured."""
    key = TOPIC_CONFIGS.get(name)
    if key is None:
        raise InvalidConfig(name, f"Unknown topic config name: {name}")
    return key


def parse_topic_config(name: str, text: str) -> ConfigValue:
    """The typed value of one key. Raises InvalidConfig if the key is unknown or the value is bad."""
    key = topic_config_key(name)
    try:
        return key.parse(text)
    except ValueError as error:
        raise InvalidConfig(name, f"Invalid value {text} for configuration {name}: {error}") from None


def validate_topic_configs(overrides: Mapping[str, str]) -> None:
    """Checks a topic's configuration before it is created or altered. Raises InvalidConfig."""
    config = LogConfig().with_overrides(overrides)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise InvalidConfig(
            "max.compaction.lag.ms",
            f"min.compaction.lag.ms of {config.min_compaction_lag_ms} is above"
            f" max.compaction.lag.ms of {config.max_compaction_lag_ms}",
        )


def server_log_config(properties: Mapping[str, str]) -> LogConfig:
    """The defaults for all topics from the keys of server.properties (`log.segment.bytes`, …).

    Keys of other concerns are left alone. Raises InvalidConfig naming the server's key.
    """
    changes: dict[str, object] = {}
    for key in _KEYS:
        if not key.synonym:
            continue
        name, text = _server_value(key.synonym, properties)
        if text is None:
            continue
        try:
            changes[key.field] = key.parse(text)
        except ValueError as error:
            raise InvalidConfig(name, f"Invalid value {text} for configuration {name}: {error}") from None
    return replace(LogConfig(), **changes)  # type: ignore[arg-type]  # typed by the table's parsers


def server_log_config_keys() -> tuple[str, ...]:
    """Every key of server.properties that `server_log_config` reads."""
    names = [key.synonym for key in _KEYS if key.synonym]
    for coarser in _COARSER_SYNONYMS.values():
        names.extend(name for name, _ in coarser)
    return tuple(sorted(names))


def server_synonyms(name: str) -> tuple[str, ...]:
    """A server's key and those in coarser units that count where it is not set, in that order."""
    return (name, *(coarser for coarser, _ in _COARSER_SYNONYMS.get(name, ())))


def _server_value(synonym: str, properties: Mapping[str, str]) -> tuple[str, str | None]:
    if synonym in properties:
        return synonym, properties[synonym]
    for name, factor in _COARSER_SYNONYMS.get(synonym, ()):
        if name in properties:
            text = properties[name].strip()
            try:
                value = whole_number(text)
            except ValueError:
                return name, text
            return name, str(value if value < 0 else value * factor)
    return synonym, None


assert all(key.field in {field.name for field in fields(LogConfig)} for key in _KEYS)
