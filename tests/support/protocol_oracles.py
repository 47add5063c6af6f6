"""Random messages of every API and version, and their bytes as kio encodes them.

kio's generated classes are one implementation of the protocol that shares nothing with ours. A
value is drawn as an instance of kio's class, and translated to ours by the fields' names.
"""

from __future__ import annotations

import dataclasses
import io
import sys
from datetime import UTC, datetime, timedelta
from typing import Any, get_args
from uuid import UUID

from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from kraft.protocol import ApiKey, Message
from kraft.protocol.api import APIS
from kraft.protocol.messages import request_class, response_class
from kraft.protocol.primitives import ZERO_UUID
from kraft.protocol.schema import Array, Structure

FIRST_PRODUCE_VERSION_OF_ORACLES = 3

# Every message as (api key, version, is it a request), but Produce 0-2, which kio lacks.
MESSAGES = [
    (api_key, version, is_request)
    for api_key, api in APIS.items()
    for version in api.versions
    for is_request in (True, False)
    if api_key != ApiKey.PRODUCE or version >= FIRST_PRODUCE_VERSION_OF_ORACLES
]


def message_id(message: tuple[ApiKey, int, bool]) -> str:
    api_key, version, is_request = message
    return f"{api_key.name}-{version}-{'request' if is_request else 'response'}"


def kio_class(api_key: ApiKey, version: int, is_request: bool) -> Any:
    return (load_request_schema if is_request else load_response_schema)(int(api_key), version)


def our_class(api_key: ApiKey, is_request: bool) -> type[Message]:
    return request_class(api_key) if is_request else response_class(api_key)


def kio_encode(value: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(value))(buffer, value)
    return buffer.getvalue()


def kio_decode(of: Any, data: bytes) -> Any:
    value, size = entity_reader(of)(data, 0)
    assert size == len(data)
    return value


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


_TEXT = st.text(max_size=12) | st.sampled_from(["x" * 126, "x" * 127, "x" * 128, "ü" * 200])
_BYTES = st.binary(max_size=20) | st.sampled_from([bytes(126), bytes(127), b"r" * 20_000])
_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": _signed(8),
    "int16": _signed(16),
    "int32": _signed(32),
    "int64": _signed(64),
    "uint16": st.integers(0, 2**16 - 1),
    "string": _TEXT,
    "records": _BYTES,
    "bytes": _BYTES,
    "error_code": st.sampled_from(KioErrorCode),
    "datetime_i64": st.integers(0, 4 * 10**12).map(lambda ms: EPOCH + timedelta(milliseconds=ms)),
    "timedelta_i32": _signed(32).map(lambda ms: timedelta(milliseconds=ms)),
    "timedelta_i64": st.integers(-(10**15), 10**15).map(lambda ms: timedelta(milliseconds=ms)),
    "float64": st.floats(allow_nan=False),
    "uuid": st.none() | st.uuids().filter(lambda value: value.int != 0),
}
_LENGTHS = st.sampled_from([0, 1, 1, 2, 3])
_LONG_LENGTHS = st.sampled_from([0, 1, 2, 3, 32, 33, 126, 127, 200])


@st.composite
def kio_values(draw: st.DrawFn, of: Any) -> Any:
    """An instance of a class of kio, nested ones included."""
    values = {}
    for field in dataclasses.fields(of):
        kind = field.type
        options = [arg for arg in get_args(kind) if arg is not type(None)]
        nullable = type(None) in get_args(kind)
        base = options[0] if nullable else kind
        if nullable and field.metadata.get("kafka_type") != "uuid" and draw(st.integers(0, 3)) == 0:
            values[field.name] = None
        else:
            values[field.name] = draw(_kio_field(base, field.metadata.get("kafka_type")))
    return of(**values)


@st.composite
def _kio_field(draw: st.DrawFn, base: Any, primitive: str | None) -> Any:
    element = next((arg for arg in get_args(base) if arg is not Ellipsis), None)
    if element is not None and dataclasses.is_dataclass(element):
        return tuple(draw(kio_values(element)) for _ in range(draw(_LENGTHS)))
    if element is not None:
        assert primitive is not None
        if primitive == "int32":
            return tuple(range(draw(_LONG_LENGTHS)))
        return tuple(draw(_PRIMITIVES[primitive]) for _ in range(draw(_LENGTHS)))
    if dataclasses.is_dataclass(base):
        return draw(kio_values(base))
    assert primitive is not None
    return draw(_PRIMITIVES[primitive])


def to_ours(value: Any, of: type[Message]) -> Message:
    """The message of ours that says the same as kio's."""
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        theirs = getattr(value, field.name)
        if field.name == "replica_state":  # two plain fields with us
            fields.update(replica_id=int(theirs.replica_id), replica_epoch=int(theirs.replica_epoch))
            continue
        name = field.name if field.name in of.NAMES else f"{field.name}_ms"
        fields[name] = _plain(theirs, field, of)
        default = getattr(of(), name)
        if default is None and dataclasses.is_dataclass(theirs) and theirs == field.default:
            fields[name] = None
    return of(**fields)


def _plain(theirs: Any, field: Any, of: type[Message]) -> Any:
    if field.metadata.get("kafka_type") == "uuid":
        return ZERO_UUID if theirs is None else theirs.bytes
    if field.metadata.get("kafka_type") == "datetime_i64":  # None is -1
        return -1 if theirs is None else (theirs - EPOCH) // timedelta(milliseconds=1)
    if isinstance(theirs, timedelta):
        return theirs // timedelta(milliseconds=1)
    if isinstance(theirs, tuple):
        return [_plain(item, field, of) for item in theirs]
    if dataclasses.is_dataclass(theirs):
        return to_ours(theirs, _struct_of(field.name, of) or _namesake(type(theirs).__name__, of))
    if isinstance(theirs, bool) or theirs is None:
        return theirs
    if isinstance(theirs, int):
        return int(theirs)
    assert not isinstance(theirs, UUID)
    return theirs


def _struct_of(name: str, of: type[Message]) -> type[Message] | None:
    """The struct that the table of our message has in this field; None if it has no table."""
    kind = dict(of.FIELDS)[name].type if of.FIELDS else None
    if isinstance(kind, Array):
        kind = kind.of
    return kind.of if isinstance(kind, Structure) else None


def _namesake(name: str, of: type[Message]) -> type[Message]:
    """Our struct of this name; kio, too, declares an API's structs beside its messages."""
    found: type[Message] = getattr(sys.modules[of.__module__], name)
    return found


_FILLED: dict[str, Any] = {
    "bool": True,
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "uint16": 65_535,
    "float64": 2.5,
    "string": "name",
    "records": b"records",
    "bytes": b"bytes",
    "error_code": KioErrorCode.offset_out_of_range,
    "datetime_i64": EPOCH + timedelta(milliseconds=5),
    "timedelta_i32": timedelta(milliseconds=6),
    "timedelta_i64": timedelta(milliseconds=7),
    "uuid": UUID(int=7),
}


def filled_kio(of: Any, *, twice: bool = True) -> Any:
    """An instance of a class of kio in which nothing is null, empty or a default. Each array has two elements
    somewhere: those within a second element have one."""
    values = {}
    for field in dataclasses.fields(of):
        options = [arg for arg in get_args(field.type) if arg is not type(None)]
        base = options[0] if type(None) in get_args(field.type) else field.type
        element = next((arg for arg in get_args(base) if arg is not Ellipsis), None)
        one = element if element is not None else base
        counted = (twice, False) if element is not None and twice else (twice,)
        filled = tuple(
            filled_kio(one, twice=inner)
            if dataclasses.is_dataclass(one)
            else _FILLED[field.metadata["kafka_type"]]
            for inner in counted
        )
        values[field.name] = filled if element is not None else filled[0]
    return of(**values)
