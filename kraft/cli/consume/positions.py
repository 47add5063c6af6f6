"""What `kraft consume` reads, and from where to where: partitions of topics, their starts and their ends."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import Any, NamedTuple

from kraft.cli.shared.options import require_text
from kraft.user_error import EXIT_FAILED, EXIT_UNDECIDED, EXIT_USAGE, UserError

METADATA_TIMEOUT_S = 10.0
MAX_OFFSET = 2**63 - 1
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Kafka's own: no regular expression means them."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets = dict[tuple[str, int], int]
"""By topic and partition."""


class From(Enum):
    """The kinds of `Start`."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "an offset"
    LAST = "so many before the end"
    TIME = "the first record of that time (ms) or later"


class Start(NamedTuple):
    """Where each partition is read from."""

    kind: From
    number: int = 0


def parse_offset(text: str) -> Start:
    """N, -N, earliest or latest. Raises UserError, wrong usage, for anything else."""
    if text in (From.EARLIEST.value, From.LATEST.value):
        return Start(From(text))
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdecimal() and len(digits) <= len(str(MAX_OFFSET)):
        number = int(digits)
        if number <= MAX_OFFSET:
            return Start(From.LAST if text.startswith("-") else From.OFFSET, number)
    raise UserError(
        f"--offset is a number, -N (the last N of each partition), earliest or latest, not {text!r}",
        EXIT_USAGE,
    )


class Topics:
    """Which topics are meant: names, names that begin like ^REGEX, and whole names by `include`. Raises UserError,
    wrong usage, where that is nothing or no expression."""

    def __init__(self, arguments: list[str], include: str | None) -> None:
        for argument in arguments:
            require_text(argument, "the topic's name")
        self.names = [argument for argument in arguments if not argument.startswith("^")]
        patterns = [argument for argument in arguments if argument.startswith("^")]
        if include is not None:
            patterns.append(f"^(?:{require_text(include, '--include')})$")
        if not arguments and include is None:
            raise UserError("name a topic, several, or what --include matches", EXIT_USAGE)
        try:
            self._patterns = [re.compile(pattern) for pattern in patterns]
        except re.error as error:
            raise UserError(f"no regular expression: {error.pattern!r}: {error.msg}", EXIT_USAGE) from error

    @property
    def needs_all(self) -> bool:
        """Whether the names of all topics are needed."""
        return bool(self._patterns)

    def chosen(self, existing: Iterable[str]) -> list[str]:
        """Names as they were given, then those that match, each once."""
        matching = [
            name
            for name in sorted(existing)
            if name not in INTERNAL_TOPICS and any(pattern.match(name) for pattern in self._patterns)
        ]
        return list(dict.fromkeys([*self.names, *matching]))


def partitions_of(consumer: Any, topics: Topics, only: int | None) -> list[TopicPartition]:
    """The partitions that are there now. Raises UserError where a topic or partition is missing, or nobody answers."""
    existing = _metadata(consumer, None) if topics.needs_all else {}
    names = topics.chosen(existing)
    if not names:
        raise UserError("no topic matches")
    found = []
    for name in names:
        topic = existing[name] if name in existing else _metadata(consumer, name)[name]
        if topic.error is not None:
            raise UserError(f"topic {name}: {topic.error.str()}")
        numbers = sorted(topic.partitions)
        if only is not None and only not in numbers:
            raise UserError(f"topic {name} has partitions 0 to {len(numbers) - 1}, not {only}")
        found += [TopicPartition(name, number) for number in numbers if only in (None, number)]
    return found


def _metadata(consumer: Any, topic: str | None) -> dict[str, Any]:
    from confluent_kafka import KafkaException

    try:
        topics: dict[str, Any] = consumer.list_topics(topic, METADATA_TIMEOUT_S).topics
    except KafkaException as error:
        raise UserError(
            f"no broker answered: {error.args[0].str()}; check --bootstrap-server", EXIT_UNDECIDED
        ) from error
    return topics


def start_offsets(consumer: Any, partitions: list[TopicPartition], start: Start) -> Offsets:
    """Where each partition is read from, also as librdkafka's names for its ends. Raises UserError."""
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END

    match start.kind:
        case From.EARLIEST:
            return dict.fromkeys(partitions, OFFSET_BEGINNING)
        case From.LATEST:
            return dict.fromkeys(partitions, OFFSET_END)
        case From.OFFSET:
            return dict.fromkeys(partitions, start.number)
        case From.LAST:
            marks = watermarks(consumer, partitions)
            return {partition: max(low, high - start.number) for partition, (low, high) in marks.items()}
        case From.TIME:
            return _offsets_for_time(consumer, partitions, start.number)


def _offsets_for_time(consumer: Any, partitions: list[TopicPartition], time_ms: int) -> Offsets:
    from confluent_kafka import KafkaException
    from confluent_kafka import TopicPartition as Wanted

    try:
        answers = consumer.offsets_for_times([Wanted(*p, time_ms) for p in partitions], METADATA_TIMEOUT_S)
    except KafkaException as error:
        raise _unanswered("the offsets at that time", error.args[0]) from error
    offsets: Offsets = {}
    for answer in answers:
        partition = TopicPartition(answer.topic, answer.partition)
        if answer.error is not None:
            raise _unanswered(str(partition), answer.error)
        offsets[partition] = answer.offset
    return offsets


def watermarks(consumer: Any, partitions: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """First offset, and the end up to which a consumer of this isolation level may read, now. Raises UserError."""
    from confluent_kafka import KafkaException
    from confluent_kafka import TopicPartition as Wanted

    found: dict[TopicPartition, tuple[int, int]] = {}
    for partition in partitions:
        try:
            found[partition] = consumer.get_watermark_offsets(Wanted(*partition), METADATA_TIMEOUT_S)
        except KafkaException as error:
            raise _unanswered(
                f"partition {partition.partition} of {partition.topic}", error.args[0]
            ) from error
    return found


def ends_of(consumer: Any, partitions: list[TopicPartition]) -> Offsets:
    """The ends now, of partitions that are not empty. Raises UserError."""
    return {
        partition: high for partition, (low, high) in watermarks(consumer, partitions).items() if high > low
    }


def _unanswered(what: str, error: Any) -> UserError:
    from confluent_kafka import KafkaError

    is_lost = error.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
    return UserError(f"{what}: {error.str()}", EXIT_UNDECIDED if is_lost else EXIT_FAILED)
