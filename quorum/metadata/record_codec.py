"""The encoding of metadata records, the msgpack array [kind, version, field, …], and of lists of them.

Decoding refuses an unknown kind or version, a missing or extra field and a wrong type, on every node alike: all nodes
understand a record, or none does. A kind with added fields has a newer version; records of older versions stay
readable, and get the defaults of the missing fields. Used by the proposals (`quorum.controller`), by apply, and to dump
or ship the metadata log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

import msgpack

from quorum.errors import MalformedError, MalformedRecordError
from quorum.metadata import wire
from quorum.metadata.records import (
    NO_BROKER_EPOCH,
    RECOVERED,
    RECOVERING,
    BrokerChange,
    Config,
    FeatureLevel,
    NoOp,
    Partition,
    PartitionChange,
    ProducerIds,
    Record,
    RegisterBroker,
    RemoveTopic,
    Topic,
    UnregisterBroker,
    VoterIdentity,
    feature_range,
    listener,
)
from quorum.metadata.wire import Check

MAX_RECORDS = 20_000
"""Records one encoded list may hold; bounds what a forged length can allocate."""

_Fields = tuple[tuple[str, Check], ...]


class _Layout(NamedTuple):
    """The layout of one kind of record: its class, and its fields in order."""

    record: type[Any]
    fields: _Fields


_recovery_state = wire.integer(RECOVERED, RECOVERING)
_short_text = wire.text(255)

_optional_broker_ids = wire.optional(wire.distinct_broker_ids)

_REGISTER_BROKER_0: _Fields = (
    ("broker_id", wire.broker_id),
    ("incarnation_id", wire.uuid),
    ("listeners", wire.tuple_of(listener)),
    ("rack", wire.optional(_short_text)),
    ("log_dirs", wire.tuple_of(wire.uuid)),
    ("fenced", wire.boolean),
)
_PARTITION_0: _Fields = (
    ("topic_id", wire.uuid),
    ("partition", wire.partition_number),
    ("replicas", wire.distinct_broker_ids),
    ("isr", wire.distinct_broker_ids),
    ("leader", wire.leader_id),
    ("leader_epoch", wire.epoch32),
    ("partition_epoch", wire.epoch32),
    ("leader_recovery_state", _recovery_state),
)
_PARTITION_CHANGE_0: _Fields = (
    ("topic_id", wire.uuid),
    ("partition", wire.partition_number),
    ("isr", _optional_broker_ids),
    ("leader", wire.optional(wire.leader_id)),
    ("leader_recovery_state", wire.optional(_recovery_state)),
)

_PARTITION_1: _Fields = (
    *_PARTITION_0,
    ("removing_replicas", wire.distinct_broker_ids),
    ("adding_replicas", wire.distinct_broker_ids),
    ("elr", wire.distinct_broker_ids),
    ("last_known_elr", wire.distinct_broker_ids),
)
_PARTITION_CHANGE_1: _Fields = (
    *_PARTITION_CHANGE_0,
    ("replicas", _optional_broker_ids),
    ("removing_replicas", _optional_broker_ids),
    ("adding_replicas", _optional_broker_ids),
    ("elr", _optional_broker_ids),
    ("last_known_elr", _optional_broker_ids),
)
_PARTITION_CHANGE_2: _Fields = (*_PARTITION_CHANGE_1, ("offline_replicas", _optional_broker_ids))

_LAYOUTS: dict[tuple[int, int], _Layout] = {
    (1, 0): _Layout(RegisterBroker, _REGISTER_BROKER_0),
    (1, 1): _Layout(
        RegisterBroker,
        (
            *_REGISTER_BROKER_0,
            ("previous_broker_epoch", wire.integer(NO_BROKER_EPOCH, wire.INT64_MAX)),
            ("in_controlled_shutdown", wire.boolean),
            ("features", wire.tuple_of(feature_range)),
        ),
    ),
    (2, 0): _Layout(UnregisterBroker, (("broker_id", wire.broker_id), ("broker_epoch", wire.offset64))),
    (3, 0): _Layout(
        BrokerChange,
        (
            ("broker_id", wire.broker_id),
            ("broker_epoch", wire.offset64),
            ("fenced", wire.optional(wire.boolean)),
            ("in_controlled_shutdown", wire.optional(wire.boolean)),
        ),
    ),
    (4, 0): _Layout(Topic, (("name", wire.text(249)), ("topic_id", wire.uuid))),
    (5, 0): _Layout(Partition, _PARTITION_0),
    (5, 1): _Layout(Partition, _PARTITION_1),
    (5, 2): _Layout(Partition, (*_PARTITION_1, ("offline_replicas", wire.distinct_broker_ids))),
    (6, 0): _Layout(PartitionChange, _PARTITION_CHANGE_0),
    (6, 1): _Layout(PartitionChange, _PARTITION_CHANGE_1),
    (6, 2): _Layout(PartitionChange, _PARTITION_CHANGE_2),
    (6, 3): _Layout(
        PartitionChange, (*_PARTITION_CHANGE_2, ("unclean_leader_epoch", wire.optional(wire.epoch32)))
    ),
    (7, 0): _Layout(RemoveTopic, (("topic_id", wire.uuid),)),
    (8, 0): _Layout(
        Config,
        (
            ("resource_type", _short_text),
            ("resource_name", _short_text),
            ("key", _short_text),
            ("value", wire.optional(wire.text())),
        ),
    ),
    (9, 0): _Layout(
        ProducerIds,
        (("broker_id", wire.broker_id), ("broker_epoch", wire.offset64), ("next_producer_id", wire.offset64)),
    ),
    (10, 0): _Layout(NoOp, ()),
    (11, 0): _Layout(FeatureLevel, (("name", _short_text), ("level", wire.feature_level))),
    (12, 0): _Layout(VoterIdentity, (("node_id", wire.broker_id), ("directory_id", wire.uuid))),
}


def _writer(fields: _Fields) -> attrgetter[tuple[Any, ...]] | None:
    """A getter of all fields as one tuple (a last, doubled name keeps single fields a tuple)."""
    names = [name for name, _ in fields]
    return attrgetter(*names, names[-1]) if names else None


_WRITERS = {  # the last, newest version of a kind is the one that is written
    layout.record: (kind, version, _writer(layout.fields)) for (kind, version), layout in _LAYOUTS.items()
}


def encode_record(record: Record) -> bytes:
    """One record as bytes: [kind, version, field, …]."""
    kind, version, values = _WRITERS[type(record)]
    fields = values(record)[:-1] if values else ()
    return wire.pack((kind, version, *fields))


def validate(record: Record) -> None:
    """Raises MalformedRecordError if a reader would refuse this record; for values from outside."""
    layout = _LAYOUTS[_WRITERS[type(record)][:2]]
    for field, check in layout.fields:
        try:
            check(getattr(record, field))
        except MalformedError as error:
            raise MalformedRecordError(f"{layout.record.__name__}, field {field}: {error}") from error


def join_encoded(encoded: list[bytes]) -> bytes:
    """A list of records from records that `encode_record` encoded one by one."""
    if len(encoded) > MAX_RECORDS:
        raise ValueError(f"{len(encoded)} records are more than the {MAX_RECORDS} that one list may hold")
    header: bytes = msgpack.Packer().pack_array_header(len(encoded))
    return header + b"".join(encoded)


def encode_records(records: Iterable[Record]) -> bytes:
    """The bytes of a list of records, in order; the same records always give the same bytes."""
    return join_encoded([encode_record(record) for record in records])


def decode_records(data: bytes | bytearray | memoryview) -> list[Record]:
    """The records in `data`. Raises MalformedRecordError for bytes that this module did not write."""
    return list(read_records(data))


def read_records(data: bytes | bytearray | memoryview) -> Iterator[Record]:
    """The records one by one, for a caller that works in steps; a malformed one raises where it stands."""
    try:
        values = wire.unpack(data, max_array_length=MAX_RECORDS)
    except MalformedError as error:
        raise MalformedRecordError(f"the metadata records cannot be read: {error}") from error
    if type(values) is not tuple:
        raise MalformedRecordError(f"metadata records are an array, not {wire.describe(values)}")
    for position, value in enumerate(values):
        yield _decode_record(position, value)


def _decode_record(position: int, value: object) -> Record:
    if type(value) is not tuple or len(value) < 2 or type(value[0]) is not int or type(value[1]) is not int:
        raise MalformedRecordError(
            f"record {position} is not an array that starts with its kind and version: {wire.describe(value)}"
        )
    layout = _LAYOUTS.get((value[0], value[1]))
    if layout is None:
        raise MalformedRecordError(
            f"record {position} is of kind {value[0]} version {value[1]}, which this node does not know; "
            "it was written by a newer version of the software"
        )
    name = layout.record.__name__
    if len(value) != len(layout.fields) + 2:
        raise MalformedRecordError(
            f"record {position} ({name}) has {len(value) - 2} fields instead of {len(layout.fields)}"
        )
    decoded = []
    for (field, check), raw in zip(layout.fields, value[2:], strict=True):
        try:
            decoded.append(check(raw))
        except MalformedError as error:
            raise MalformedRecordError(f"record {position} ({name}), field {field}: {error}") from error
    record: Record = layout.record(*decoded)
    return record
