"""Varints, strings, arrays and tagged fields: the base of the compiled codecs.

Reading is bounded: a length or a count is compared with the remaining bytes before anything is allocated for it, and a
string has at most `MAX_STRING_BYTES`. Every reader raises ProtocolError, IndexError, UnicodeDecodeError or
`struct.error` on malformed input; `MALFORMED` lists these for the one `except` of each decoder. Unsigned varints and
tagged fields are those of KIP-482.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import error as StructError
from typing import Any, NamedTuple, Protocol

from kraft.protocol.errors import ProtocolError

Buffer = bytes | bytearray | memoryview

UUID_BYTES = 16
ZERO_UUID = bytes(UUID_BYTES)
MAX_TAGGED_FIELDS = 256
"""Tagged fields in one struct. The protocol has no struct with more than four."""

MAX_ELEMENTS = 1_000_000
"""Structs and strings in all arrays of one message. A small element costs many times its bytes in
memory, so the length of the frame alone does not bound what a message may cost."""
MAX_REQUEST_ELEMENTS = 150_000
"""The same for requests, numbers included; a request above it closes its connection. Each element costs a handler some
10 to 30 µs on the event loop, and 6 MB of unknown partitions held up all other clients for 12 s. Kafka has no such
limit. The largest real requests are followers' first fetches, which name each partition of a leader once: two brokers
may share that many."""

MAX_STRING_BYTES = 0x7FFF
"""Bytes of a string in UTF-8: the limit of the two-byte length in versions that are not flexible. Kafka refuses longer
strings in every version."""

BYTES_LIKE = (bytes, bytearray, memoryview)
COPY_BELOW_BYTES = 2048
"""Bytes shorter than this are copied into the part before them rather than sent as a part of their own."""

MALFORMED = (StructError, IndexError, UnicodeDecodeError)
"""The errors of reading malformed bytes, beside ProtocolError."""

UNENCODABLE = (StructError, AttributeError, TypeError, UnicodeEncodeError)
"""The errors of writing a message with a wrong, missing or too large value, beside ProtocolError."""


class Slice(Protocol):
    """Bytes outside of memory: a range of a file, which the network lane sends."""

    @property
    def length(self) -> int:
        """Length of the range in bytes."""


Segment = Buffer | Slice
Encoded = tuple[list[Segment], int]
"""The parts of an encoded message in order, the first always in memory, and their total size in bytes."""


class Codec(NamedTuple):
    """The two directions of one message in one version.

    `decode(buffer, position)` returns the message and the position behind it; the buffer is bytes
    or a memoryview of bytes.
    """

    encode: Callable[..., Encoded]
    decode: Callable[..., tuple[Any, int]]


def overrun(what: str, needed_bytes: int, remaining_bytes: int) -> ProtocolError:
    """The error for a length that points behind the end of the message."""
    return ProtocolError(f"{what} needs at least {needed_bytes} bytes, but {remaining_bytes} remain")


def check_elements(count: int, limit: int = MAX_ELEMENTS) -> None:
    """Refuses a message whose arrays hold more elements than any real one."""
    if count > limit:
        raise ProtocolError(f"{count} array elements in one message, above the limit of {limit}")


def check_string_length(what: str, length_bytes: int) -> None:
    """Refuses a string that is longer than any that Kafka reads."""
    if length_bytes > MAX_STRING_BYTES:
        raise ProtocolError(f"{what} has {length_bytes} bytes, above the limit of {MAX_STRING_BYTES}")


def not_nullable(what: str) -> ProtocolError:
    """The error for a null where the version allows none."""
    return ProtocolError(f"{what} must not be null")


def uvarint(value: int) -> bytes:
    """An unsigned varint."""
    if value < 128:
        return UVARINTS[value]
    if value < 1 << 14:
        return bytes((value & 127 | 128, value >> 7))
    if value < 1 << 21:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_uvarint(value: int) -> bytes:
    """The compact length of a string, already one more than the true one. Raises ProtocolError."""
    check_string_length("a string", value - 1)
    return uvarint(value)


UVARINTS: tuple[bytes, ...] = tuple(bytes((value,)) for value in range(128))
"""The one-byte varints, by value."""


def varint_tail(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte, above 127, has been read from `position` - 1.

    Returns the value and the position behind it.
    """
    value = first & 127
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        if byte < 128:
            return value | byte << shift, position
        value |= (byte & 127) << shift
    raise ProtocolError("a varint is longer than 5 bytes")


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """An unsigned varint and the position behind it."""
    value = data[position]
    if value < 128:
        return value, position + 1
    return varint_tail(data, position + 1, value)


def read_tag_count(data: Buffer, position: int) -> tuple[int, int]:
    """The number of tagged fields that follow, and the position of the first."""
    count, position = read_uvarint(data, position)
    if count > MAX_TAGGED_FIELDS:
        raise ProtocolError(f"{count} tagged fields in one struct, above the limit of {MAX_TAGGED_FIELDS}")
    return count, position


def read_tag(data: Buffer, position: int) -> tuple[int, int, int]:
    """The head of one tagged field: its tag, where its value starts, and where it ends."""
    tag, position = read_uvarint(data, position)
    size, position = read_uvarint(data, position)
    if size > len(data) - position:
        raise overrun(f"tagged field {tag}", size, len(data) - position)
    return tag, position, position + size


def skip_tagged_fields(data: Buffer, position: int) -> int:
    """The position behind a section of tagged fields that are all unknown here."""
    if data[position] == 0:
        return position + 1
    count, position = read_tag_count(data, position)
    for _ in range(count):
        _, _, position = read_tag(data, position)
    return position


def check_tag_end(what: str, position: int, end: int) -> None:
    """Refuses a known tagged field whose value is shorter or longer than its announced size."""
    if position != end:
        raise ProtocolError(f"{what}: a tagged field's value does not fill its announced size")


def record_set_bytes(records: Buffer | Sequence[Slice] | None) -> int:
    """The size of a record set in memory or in files; -1 for null."""
    if records is None:
        return -1
    return len(records) if isinstance(records, BYTES_LIKE) else sum([piece.length for piece in records])


def add_records(
    parts: list[Segment], before: list[Buffer], records: Buffer | Sequence[Slice], size_bytes: int
) -> int:
    """Appends a record set that is not empty: to `before` if it is short, else behind it as parts of their own.

    Returns how many bytes of parts have been closed.
    """
    if not isinstance(records, BYTES_LIKE):
        pieces: Sequence[Segment] = records
    elif size_bytes < COPY_BELOW_BYTES:
        before.append(records)
        return 0
    else:
        pieces = (records,)
    start = b"".join(before)
    before.clear()
    parts += (start, *pieces)
    return len(start) + size_bytes


def check_uuid(value: bytes) -> bytes:
    """The value itself if it is a UUID's 16 bytes (`struct` would pad or cut any other)."""
    if len(value) != UUID_BYTES:
        raise ProtocolError(f"a UUID has {UUID_BYTES} bytes, not {len(value)}")
    return value
