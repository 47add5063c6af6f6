"""A decoded request as a handler gets it, and what a handler returns."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Generic, NamedTuple, TypeVar

from kraft.network.response import Deferred
from kraft.network.session import Session
from kraft.protocol.schema import Message

Body = TypeVar("Body", bound=Message)


class Request(NamedTuple, Generic[Body]):
    """`session` is that of the connection that it came by."""

    body: Body
    version: int
    client_id: str | None
    session: Session


HandlerResult = Message | None | Deferred[Any, Message] | Awaitable[Message | None]
"""What a handler returns: a message now or later, None where the request has no answer (acks=0)."""
