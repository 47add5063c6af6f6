"""A decoded request as a handler gets it."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from kraft.network.session import Session
from kraft.protocol.schema import Message

Body = TypeVar("Body", bound=Message)


class Request(NamedTuple, Generic[Body]):
    """`session` is that of the connection that it came by."""

    body: Body
    version: int
    client_id: str | None
    session: Session
