"""Where partitions are to go, as people write it: broker ids after --to, or a file as Kafka's tool reads it."""

from __future__ import annotations

import json
from pathlib import Path
from reprlib import repr as short
from typing import Any

from kraft.user_error import EXIT_USAGE, UserError
from partitions.topic_partition import TopicPartition

INT32_MAX = 2**31 - 1
"""Of broker ids and partitions."""
FORM = '{"partitions": [{"topic": …, "partition": …, "replicas": […]}]}'


def parse_brokers(text: str, option: str = "--to") -> list[int]:
    """The broker ids in `1,2,3`. Raises UserError."""
    try:
        return [_id_in(part.strip()) for part in text.split(",")]
    except ValueError as error:
        raise UserError(f"{option} takes broker ids, as in 1,2,3, and not {text!r}", EXIT_USAGE) from error


def read_targets(file: Path) -> dict[TopicPartition, list[int]]:
    """The targets in a file of Kafka's format. Raises UserError for one that is anything else."""
    try:
        targets = _targets_in(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}", EXIT_USAGE) from error
    except RecursionError as error:
        raise UserError(
            f"{file} is not a list of reassignments ({FORM}): it is nested too deeply", EXIT_USAGE
        ) from error
    except ValueError as error:
        raise UserError(f"{file} is not a list of reassignments ({FORM}): {error}", EXIT_USAGE) from error
    if not targets:
        raise UserError(f"{file} names no partition", EXIT_USAGE)
    return targets


def _targets_in(document: Any) -> dict[TopicPartition, list[int]]:
    """Raises ValueError."""
    targets: dict[TopicPartition, list[int]] = {}
    for row in _list(_field(document, "partitions"), "partitions"):
        topic = _field(row, "topic")
        if not isinstance(topic, str):
            raise ValueError(f"{short(topic)} is no topic")
        key = TopicPartition(topic, _id(_field(row, "partition")))
        if key in targets:
            raise ValueError(f"it names {key} twice")
        targets[key] = [_id(broker) for broker in _list(_field(row, "replicas"), "replicas")]
        if not targets[key]:
            raise ValueError(f"it names no replicas of {key}")
        if len(set(targets[key])) < len(targets[key]):
            raise ValueError(f"it names a replica of {key} twice")
    return targets


def _field(row: Any, name: str) -> Any:
    if not isinstance(row, dict) or name not in row:
        raise ValueError(f'{short(row)} has no "{name}"')
    return row[name]


def _list(value: Any, name: str) -> list[Any]:
    """What could be iterated as well, a text or an object, would name other brokers than are meant."""
    if not isinstance(value, list):
        raise ValueError(f'"{name}" is no list: {short(value)}')
    return value


def _id(value: Any) -> int:
    """A broker's id, or a partition, as JSON has it: 1.9, "1" and true are none. Raises ValueError."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{short(value)} is no number")
    if not 0 <= value <= INT32_MAX:
        raise ValueError(f"{short(value)} is not between 0 and {INT32_MAX}")
    return value


def _id_in(text: str) -> int:
    """The same of a text: int() takes 1_2 and +1, too."""
    if not text.isdecimal():
        raise ValueError(f"{text!r} is no number")
    return _id(int(text))
