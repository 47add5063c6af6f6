"""Records with keys, as compacted topics have them, and their values in a history.

Values of a history are unique, a tombstone (a null value) is not. So a keyed record's value in the history holds its
key, whether it deletes the key, and a unique name. A tombstone carries that name in a header, which compaction keeps.
Producers encode, consumers and judges decode. Pure.
"""

from __future__ import annotations

from typing import Final

from kraft.chaos.history import Value
from partitions.records.record import Headers

_VALUE: Final = b"="
_TOMBSTONE: Final = b"!"
_NAME_HEADER: Final = "name"


def keyed_value(key: bytes, name: bytes, *, tombstone: bool) -> Value:
    """The record's value in the history. No key contains one of the marks."""
    return (_TOMBSTONE if tombstone else _VALUE) + key + _VALUE + name


def is_tombstone(value: Value) -> bool:
    """Whether a keyed value deletes its key."""
    return value.startswith(_TOMBSTONE)


def key_of(value: Value) -> bytes:
    """The key of a keyed value."""
    return value[1:].partition(_VALUE)[0]


def record_of(value: Value) -> tuple[bytes, bytes | None, Headers]:
    """Key, value and headers of the record behind a keyed value."""
    key, _, name = value[1:].partition(_VALUE)
    if is_tombstone(value):
        return key, None, ((_NAME_HEADER, name),)
    return key, name, ()


def value_of(key: bytes | None, value: bytes | None, headers: Headers) -> Value:
    """The value in the history of a record that was read, with a key or without one."""
    if key is None:
        return value or b""
    if value is not None:
        return keyed_value(key, value, tombstone=False)
    name = next((text for header, text in headers if header == _NAME_HEADER and text is not None), b"")
    return keyed_value(key, name, tombstone=True)
