"""A decoded request as a handler gets it."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from kraft.protocol.schema import Message

Body = TypeVar("Body", bound=Message)


class Request(NamedTuple, Generic[Body]):
    """`listener_name` is the listener that the client came through; answers name addresses of it."""

    body: Body
    version: int
    client_id: str | None
    listener_name: str
    peer: tuple[str, int]
