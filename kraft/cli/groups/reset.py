"""What a reset of a group's offsets changes: a target, and from what is known of the partitions, the changes. Pure.

`kraft groups reset-offsets` shows the changes and commits them. Targets, durations and files are those of Kafka's
kafka-consumer-groups tool.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from kraft.user_error import EXIT_USAGE, UserError
from partitions.topic_partition import TopicPartition

OFFSET_MAX = 2**63 - 1
_COLUMNS = "topic,partition,offset or group,topic,partition,offset"


class To(Enum):
    """The kinds of `Target`."""

    EARLIEST = auto()
    LATEST = auto()
    OFFSET = auto()
    TIME = auto()
    """`number` is in ms since 1970."""
    SHIFT = auto()
    CURRENT = auto()
    FILE = auto()


@dataclass(frozen=True)
class Target:
    """Where partitions go."""

    kind: To
    number: int = 0
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Of a file."""


class Known(NamedTuple):
    """What is known of a partition: the log's first offset and its high watermark, the committed offset if there is
    one, and, for a time, the offset of the first record that is not older, if there is one."""

    start: int
    end: int
    current: int | None
    at_time: int | None = None


class Change(NamedTuple):
    """`before` is None where nothing was committed; `note` says why the offset is not the one that was asked for."""

    topic: str
    partition: int
    before: int | None
    to: int
    note: str | None = None


def plan(partitions: Mapping[TopicPartition, Known], target: Target) -> list[Change]:
    """A change for each partition, also where the offset stays the same, in the partitions' order.

    Offsets outside the log become its nearest end; the one that `To.CURRENT` keeps stays as it is. Raises UserError
    where an offset that does not exist is to be shifted.
    """
    return [_change(key, known, target) for key, known in sorted(partitions.items())]


def _change(key: TopicPartition, known: Known, target: Target) -> Change:
    to, note = _wanted(key, known, target)
    if target.kind is not To.CURRENT:
        nearest = min(max(to, known.start), known.end)
        if nearest != to:
            where = "before the log's start" if to < known.start else "behind the log's end"
            to, note = nearest, f"offset {to} lies {where}: {nearest} is taken"
    return Change(*key, known.current, to, note)


def _wanted(key: TopicPartition, known: Known, target: Target) -> tuple[int, str | None]:
    match target.kind:
        case To.EARLIEST:
            return known.start, None
        case To.LATEST:
            return known.end, None
        case To.OFFSET:
            return target.number, None
        case To.TIME:
            return _or_end(
                known.at_time, known.end, "it has no record of that time or later: its end is taken"
            )
        case To.CURRENT:
            return _or_end(known.current, known.end, "it has no committed offset: its end is taken")
        case To.SHIFT:
            if known.current is None:
                raise UserError(f"{key} has no committed offset to shift: reset it to an offset first")
            return known.current + target.number, None
        case To.FILE:
            return target.offsets[key], None


def _or_end(offset: int | None, end: int, note: str) -> tuple[int, str | None]:
    return (end, note) if offset is None else (offset, None)


def parse_file(text: str, group: str) -> dict[TopicPartition, int]:
    """The offsets that Kafka's CSV gives a group: topic,partition,offset, or with the group before them; lines of other
    groups are left out. Raises UserError, wrong usage."""
    offsets: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(text.splitlines(), skipinitialspace=True), start=1):
        if not row:
            continue
        key, offset = _entry(row, number)
        if len(row) == 4 and row[0] != group:
            continue
        if key in offsets:
            raise UserError(f"line {number} of the file: {key} is named more than once", EXIT_USAGE)
        offsets[key] = offset
    if not offsets:
        raise UserError(
            f"the file names no partition for group {group}; its lines are {_COLUMNS}", EXIT_USAGE
        )
    return offsets


def _entry(row: list[str], line: int) -> tuple[TopicPartition, int]:
    if len(row) in (3, 4):
        topic, partition, offset = (cell.strip() for cell in row[-3:])
        if topic and _is_number(partition, 2**31 - 1) and _is_number(offset, OFFSET_MAX):
            return TopicPartition(topic, int(partition)), int(offset)
    raise UserError(f"line {line} of the file is not {_COLUMNS}: {','.join(row)!r}", EXIT_USAGE)


def _is_number(text: str, maximum: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(maximum)) and int(text) <= maximum
