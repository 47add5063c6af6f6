"""Messages ↔ msgpack-able dicts, checked against the dataclasses' own field types.

`encode` gives a dict of field name to plain value. `decode` refuses missing, unknown and wrongly typed
fields with a `MalformedMessageError` whose sentence names the field: no handler meets a value of another
type than declared. A field with a default may be left out. The controller judges ranges and meaning. An answer is a
response with the offset of the metadata that it was given at. Voters and their callers use this.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from quorum.errors import MalformedError, MalformedMessageError
from quorum.metadata import wire
from quorum.metadata.typed_fields import field_checks
from quorum.metadata.wire import Check
from quorum.rpc.messages import METHODS, ControllerResponse, RpcRequest

M = TypeVar("M")
Response = TypeVar("Response", bound=ControllerResponse)
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


def _message_check(message_class: type[Any]) -> Check:
    """A check for a dict with exactly the fields of the dataclass (those with a default may miss)."""
    checks = field_checks(message_class, of_dataclass=_message_check)
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


_CHECKS = MappingProxyType[Any, Check](
    {message: _message_check(message) for rpc in METHODS.values() for message in (rpc.request, rpc.response)}
)
