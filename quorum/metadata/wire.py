"""Checked msgpack: it reads values of exactly the declared types.

Everything that the quorum stores or receives passes these checks. Forged or damaged bytes so end in one
`MalformedError` with a sentence, never in a `TypeError` three calls later. A check takes a decoded value and returns it
(converted where a dataclass wants a tuple or a nested value), or raises `MalformedError`. Used by records, image,
proposal and `quorum.rpc.messages`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgpack

from partitions.topic_partition import TOPIC_ID_BYTES
from quorum.errors import MalformedError

Check = Callable[[object], Any]

INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
UUID_BYTES = TOPIC_ID_BYTES
NO_LEADER = -1

_UNPACK_ERRORS = (ValueError, TypeError, RecursionError, OverflowError, msgpack.UnpackException)


def pack(value: object) -> bytes:
    """The msgpack bytes of plain values (None, bool, int, float, str, bytes, sequences, string-keyed dicts)."""
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def unpack(data: bytes | bytearray | memoryview, *, max_array_length: int | None = None) -> object:
    """The one value that `data` holds; arrays come back as tuples.

    `max_array_length` bounds what a forged array header can make the decoder allocate per level;
    without it the length of `data` is the bound. Raises MalformedError.
    """
    limit = len(data) if max_array_length is None else min(len(data), max_array_length)
    try:
        return msgpack.unpackb(
            data, raw=False, use_list=False, strict_map_key=True, max_array_len=limit, max_map_len=limit
        )
    except _UNPACK_ERRORS as error:
        raise MalformedError(f"not a well-formed msgpack value: {error or type(error).__name__}") from error


class Reader:
    """Reads a large value piece by piece: the headers of its outer arrays, then their elements.

    Every method raises MalformedError if the bytes are of another kind. A forged header has nothing allocated for the
    elements that it only announces.
    """

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        limit = max(len(data), 1)
        self._size_bytes = len(data)
        self._unpacker = msgpack.Unpacker(
            raw=False,
            use_list=False,
            strict_map_key=True,
            max_buffer_size=limit,
            max_array_len=limit,
            max_map_len=limit,
        )
        self._unpacker.feed(data)

    def array_header(self, what: str) -> int:
        """The number of elements of the array that begins here; `what` names it in the error."""
        try:
            length: int = self._unpacker.read_array_header()
        except _UNPACK_ERRORS as error:
            raise MalformedError(f"{what} is an array: {error or type(error).__name__}") from error
        return length

    def array_of(self, length: int, what: str) -> None:
        """Enters an array of exactly `length` elements."""
        found = self.array_header(what)
        if found != length:
            raise MalformedError(f"{what} is an array of {length} elements, not of {found}")

    def value(self) -> object:
        """The next value, whole; arrays come back as tuples."""
        try:
            return self._unpacker.unpack()
        except _UNPACK_ERRORS as error:
            raise MalformedError(
                f"not a well-formed msgpack value: {error or type(error).__name__}"
            ) from error

    def end(self) -> None:
        """Checks that no bytes follow."""
        if self._unpacker.tell() != self._size_bytes:
            raise MalformedError(f"{self._size_bytes - self._unpacker.tell()} bytes follow the value")


def describe(value: object) -> str:
    """A short, bounded rendering of a decoded value for an error sentence."""
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def integer(minimum: int, maximum: int) -> Check:
    """A check for an int (never a bool) within [minimum, maximum]."""

    def check(value: object) -> int:
        if type(value) is not int or not minimum <= value <= maximum:
            raise MalformedError(f"an integer from {minimum} to {maximum} is needed, not {describe(value)}")
        return value

    return check


def number(value: object) -> float:
    """A check for a float that is a number (never an int, so that equal values have equal bytes)."""
    if type(value) is not float or not math.isfinite(value):
        raise MalformedError(f"a finite float is needed, not {describe(value)}")
    return value


def boolean(value: object) -> bool:
    """A check for a bool."""
    if type(value) is not bool:
        raise MalformedError(f"a boolean is needed, not {describe(value)}")
    return value


def text(max_length: int = INT32_MAX) -> Check:
    """A check for a str of at most `max_length` characters."""

    def check(value: object) -> str:
        if type(value) is not str or len(value) > max_length:
            raise MalformedError(
                f"a string of at most {max_length} characters is needed, not {describe(value)}"
            )
        return value

    return check


def binary(value: object) -> bytes:
    """A check for bytes of any length."""
    if type(value) is not bytes:
        raise MalformedError(f"bytes are needed, not {describe(value)}")
    return value


def uuid(value: object) -> bytes:
    """A check for 16 bytes: a topic id, an incarnation id, a log directory id."""
    if type(value) is not bytes or len(value) != UUID_BYTES:
        raise MalformedError(f"{UUID_BYTES} bytes are needed, not {describe(value)}")
    return value


def optional(check: Check) -> Check:
    """`check`, or None."""

    def checked(value: object) -> Any:
        return None if value is None else check(value)

    return checked


def tuple_of(check: Check) -> Check:
    """A check for an array (tuple or list) whose elements all pass `check`; gives a tuple."""

    def checked(value: object) -> tuple[Any, ...]:
        if not isinstance(value, tuple | list):
            raise MalformedError(f"an array is needed, not {describe(value)}")
        return tuple([check(element) for element in value])

    return checked


def array(value: object, length: int, what: str) -> tuple[object, ...]:
    """`value` as an array (tuple or list) of exactly `length` elements; `what` names it in the error."""
    if not isinstance(value, tuple | list) or len(value) != length:
        raise MalformedError(f"{what} is an array of {length} elements, not {describe(value)}")
    return tuple(value)


def distinct_broker_ids(value: object) -> tuple[int, ...]:
    """A check for an array of distinct broker ids."""
    if type(value) is not tuple:
        raise MalformedError(f"an array of broker ids is needed, not {describe(value)}")
    for element in value:
        if type(element) is not int or not 0 <= element <= INT32_MAX:
            raise MalformedError(f"a broker id is an integer from 0 to {INT32_MAX}, not {describe(element)}")
    if len(set(value)) != len(value):
        raise MalformedError(f"broker ids may not repeat: {describe(value)}")
    return value


broker_id = integer(0, INT32_MAX)
leader_id = integer(NO_LEADER, INT32_MAX)
partition_number = integer(0, INT32_MAX)
epoch32 = integer(0, INT32_MAX)
feature_level = integer(0, INT16_MAX)
offset64 = integer(0, INT64_MAX)


def fixed_tuple(checks: tuple[Check, ...]) -> Check:
    """A check for an array with one element per check; gives a tuple."""

    def checked(value: object) -> tuple[Any, ...]:
        if not isinstance(value, tuple | list) or len(value) != len(checks):
            raise MalformedError(f"an array of {len(checks)} elements is needed, not {describe(value)}")
        return tuple([check(element) for check, element in zip(checks, value, strict=True)])

    return checked
