"""Messages ↔ msgpack-able dicts, checked against the dataclasses' own field types.

`encode` gives a dict of field name to plain value. `decode` refuses missing, unknown and wrongly typed
fields with a `MalformedMessageError` whose sentence names the field: no handler meets a value of another
type than declared. A field with a default may be left out. The controller judges ranges and meaning. An answer is a
response with the offset of the metadata that it was given at. Voters and their callers use this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from quorum.errors import MalformedError, MalformedMessageError
from quorum.metadata import records, wire
from quorum.metadata.records import Listener
from quorum.rpc.messages import METHODS, ControllerResponse, RpcRequest

M = TypeVar("M")
Response = TypeVar("Response", bound=ControllerResponse)
_Check = Callable[[object], Any]
_OFFSET = wire.integer(-1, wire.INT64_MAX)
_FIELDS_OF_ANSWER = {"offset", "response"}


def encode(message: object) -> dict[str, Any]:
    """The message as a dict of plain values, ready for msgpack."""
    plain: dict[str, Any] = _plain(message)
    return plain


def decode(message_class: type[M], body: object) -> M:
    """The message that `body`, a decoded msgpack map, holds. Raises MalformedMessageError."""
    try:
        message: M = _CHECKS[message_class](body)
        return message
    except MalformedError as error:
        raise MalformedMessageError(f"{message_class.__name__}: {error}") from error


def decode_request(method: str, body: object) -> Any:
    """The request of an RPC method. Raises MalformedMessageError, also for a method nobody serves."""
    if method not in METHODS:
        raise MalformedMessageError(
            f"the controller serves no method {method!r}; it serves {', '.join(METHODS)}"
        )
    return decode(METHODS[method].request, body)


class Answer(NamedTuple, Generic[Response]):
    """A response, and the committed offset of the metadata that has everything which it tells of."""

    response: Response
    offset: int


def encode_response(response: ControllerResponse, offset: int) -> dict[str, Any]:
    """The answer to a request, as a dict of plain values."""
    return {"offset": offset, "response": _plain(response)}


def decode_response(request: RpcRequest[Response], body: object) -> Answer[Response]:
    """What a request was answered with. Raises MalformedMessageError."""
    if not isinstance(body, dict) or body.keys() != _FIELDS_OF_ANSWER:
        raise MalformedMessageError(f"{request.RPC.method}: an answer has an offset and a response")
    try:
        offset = _OFFSET(body["offset"])
    except MalformedError as error:
        raise MalformedMessageError(f"{request.RPC.method}: field offset: {error}") from error
    response: Any = decode(request.RPC.response, body["response"])
    return Answer(response, offset)


def _plain(value: Any) -> Any:
    kind: Any = type(value)
    names = _names_of_fields(kind)
    if names is not None:
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, tuple):
        return [_plain(element) for element in value]
    return value


@cache
def _names_of_fields(kind: type[Any]) -> tuple[str, ...] | None:
    """A dataclass's; None of any other class."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


def _message_check(message_class: type[Any]) -> _Check:
    """A check for a dict with exactly the fields of the dataclass (those with a default may miss)."""
    hints = get_type_hints(message_class)
    checks = {field.name: _check_of(hints[field.name]) for field in fields(message_class)}
    needed = [field.name for field in fields(message_class) if field.default is MISSING]

    def check(body: object) -> Any:
        if not isinstance(body, dict):
            raise MalformedError(f"a map of fields is needed, not {wire.describe(body)}")
        for name in needed:
            if name not in body:
                raise MalformedError(f"field {name} is missing")
        values = {}
        for name, raw in body.items():
            field_check = checks.get(name)
            if field_check is None:
                raise MalformedError(f"field {wire.describe(name)} is unknown")
            try:
                values[name] = field_check(raw)
            except MalformedError as error:
                raise MalformedError(f"field {name}: {error}") from error
        return message_class(**values)

    return check


_SCALARS = MappingProxyType[Any, _Check](
    {
        int: wire.integer(wire.INT64_MIN, wire.INT64_MAX),
        str: wire.text(),
        bytes: wire.binary,
        bool: wire.boolean,
        Listener: records.listener,
    }
)


def _check_of(hint: Any) -> _Check:
    if hint in _SCALARS:
        return _SCALARS[hint]
    if is_dataclass(hint) and isinstance(hint, type):
        return _message_check(hint)
    arguments = get_args(hint)
    if get_origin(hint) is UnionType and len(arguments) == 2 and NoneType in arguments:
        return wire.optional(_check_of(next(argument for argument in arguments if argument is not NoneType)))
    if get_origin(hint) is tuple and arguments[-1] is Ellipsis:
        return wire.tuple_of(_check_of(arguments[0]))
    if get_origin(hint) is tuple:
        return wire.fixed_tuple(tuple(_check_of(argument) for argument in arguments))
    raise TypeError(f"no check for a field of type {hint}")


_CHECKS = MappingProxyType[Any, _Check](
    {message: _message_check(message) for rpc in METHODS.values() for message in (rpc.request, rpc.response)}
)
