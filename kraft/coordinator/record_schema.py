"""Keys and values of coordinators' records: Kafka's versioned structures, declared as messages are.

A key is its type as int16, then its fields; a value is its version as int16, then its fields. Both are compiled from
the same declarations as the wire protocol (`kraft.protocol.schema`), so that Kafka's own tools read what we write.
"""

from __future__ import annotations

from functools import cached_property
from struct import Struct
from typing import Generic, TypeVar

from kraft.protocol.compiler import compile_codec
from kraft.protocol.errors import ProtocolError
from kraft.protocol.primitives import Codec
from kraft.protocol.schema import Message

M = TypeVar("M", bound=Message)
_NUMBER = Struct(">h")


class RecordSchema(Generic[M]):
    """One structure: the versions that are read, the one that is written.

    For a key `write_version` is its type, and the only one.
    """

    def __init__(self, of: type[M], write_version: int, *, read: range, flexible_from: int | None) -> None:
        self._of = of
        self._write_version = write_version
        self._read = read
        self._flexible_from = flexible_from
        self._codecs: dict[int, Codec] = {}

    def encode(self, message: M) -> bytes:
        """Raises ProtocolError for a value that cannot be carried."""
        segments, _ = self._codec(self._write_version).encode(message)
        return b"".join((self._prefix, *segments))  # type: ignore[arg-type]  # there are no slices in it

    def decode(self, data: bytes | memoryview) -> M:
        """Raises ProtocolError for what is malformed, and for a version that is not read."""
        if len(data) < _NUMBER.size:
            raise ProtocolError(f"{len(data)} bytes are no {self._of.__name__}")
        (version,) = _NUMBER.unpack_from(data)
        if version not in self._read:
            raise ProtocolError(f"version {version} of {self._of.__name__} is not known here")
        message: M = self._codec(version).decode(data, _NUMBER.size)[0]
        return message

    @cached_property
    def _prefix(self) -> bytes:
        return _NUMBER.pack(self._write_version)

    def _codec(self, version: int) -> Codec:
        codec = self._codecs.get(version)
        if codec is None:
            flexible = self._flexible_from is not None and version >= self._flexible_from
            codec = self._codecs[version] = compile_codec(self._of, version, flexible)
        return codec


def type_of_key(key: bytes | memoryview) -> int:
    """The number that tells what a key is of; -1 for what is too short to have one."""
    return int.from_bytes(key[: _NUMBER.size], "big", signed=True) if len(key) >= _NUMBER.size else -1
