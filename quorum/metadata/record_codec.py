"""The encoding of metadata records, the msgpack array [kind, version, field, …], and of lists of them.

Decoding refuses an unknown kind or version, a missing or extra field and a wrong type, on every node alike: all nodes
understand a record, or none does. A kind with added fields has a newer version; records of older versions stay
readable, and get the defaults of the missing fields. Used by the proposals (`quorum.controller`), by apply, and to dump
or ship the metadata log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

import msgpack

from quorum.errors import MalformedError, MalformedRecordError
from quorum.metadata import wire
from quorum.metadata.records import (
    AccessControlEntry,
    BrokerChange,
    ClientQuota,
    Config,
    FeatureLevel,
    NoOp,
    Partition,
    PartitionChange,
    ProducerIds,
    Record,
    RegisterBroker,
    RemoveAccessControlEntry,
    RemoveTopic,
    RemoveUserScramCredential,
    Topic,
    UnregisterBroker,
    UserScramCredential,
    VoterIdentity,
)
from quorum.metadata.typed_fields import field_checks
from quorum.metadata.wire import Check

MAX_RECORDS = 20_000
"""Records one encoded list may hold; bounds what a forged length can allocate."""


class _Layout(NamedTuple):
    """The layout of one version of a kind of record: its class, and its fields in order, each with its check."""

    record: type[Any]
    fields: tuple[tuple[str, Check], ...]


_KINDS: Mapping[int, tuple[type[Any], tuple[int, ...]]] = {
    1: (RegisterBroker, (6, 9)),
    2: (UnregisterBroker, (2,)),
    3: (BrokerChange, (4,)),
    4: (Topic, (2,)),
    5: (Partition, (8, 12, 13)),
    6: (PartitionChange, (5, 10, 11, 12)),
    7: (RemoveTopic, (1,)),
    8: (Config, (4,)),
    9: (ProducerIds, (3,)),
    10: (NoOp, (0,)),
    11: (FeatureLevel, (2,)),
    12: (VoterIdentity, (2,)),
    13: (UserScramCredential, (6,)),
    14: (RemoveUserScramCredential, (2,)),
    15: (AccessControlEntry, (1,)),
    16: (RemoveAccessControlEntry, (1,)),
    17: (ClientQuota, (3,)),
}
"""The class of each kind, and how many of its fields its versions 0, 1, … have: a field is only ever added behind all
others."""


def _layouts() -> Iterator[tuple[tuple[int, int], _Layout]]:
    for kind, (record, counts) in _KINDS.items():
        fields = tuple(field_checks(record).items())
        assert len(fields) == counts[-1], f"the newest version of {record.__name__} has all its fields"
        for version, count in enumerate(counts):
            yield (kind, version), _Layout(record, fields[:count])


_LAYOUTS = dict(_layouts())


def _writer(layout: _Layout) -> attrgetter[tuple[Any, ...]] | None:
    """A getter of all fields as one tuple (a last, doubled name keeps single fields a tuple)."""
    names = [name for name, _ in layout.fields]
    return attrgetter(*names, names[-1]) if names else None


_WRITERS = {  # the last, newest version of a kind is the one that is written
    layout.record: (kind, version, _writer(layout)) for (kind, version), layout in _LAYOUTS.items()
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


def record_count(data: bytes | bytearray | memoryview) -> int:
    """How many records a list has, none of them looked at. Raises MalformedRecordError."""
    unpacker = msgpack.Unpacker(max_buffer_size=0)
    unpacker.feed(data)
    try:
        count: int = unpacker.read_array_header()
    except (ValueError, msgpack.OutOfData) as error:
        raise MalformedRecordError(f"the metadata records cannot be read: {error}") from error
    return count


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


def first_records(data: bytes | bytearray | memoryview, count: int) -> list[Record]:
    """The first `count` records, at the cost of these. Raises MalformedRecordError."""
    reader = wire.Reader(data)
    try:
        length = reader.array_header("a list of metadata records")
        values = [reader.value() for _ in range(min(count, length))]
    except MalformedError as error:
        raise MalformedRecordError(f"the metadata records cannot be read: {error}") from error
    return [_decode_record(position, value) for position, value in enumerate(values)]


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
