"""Typed calls from a broker to the active controller, over `quorum.rpc`.

Every method may be repeated: epochs fence it. Raises `RpcError` with Kafka's error name when the
controller refuses, `RpcUnavailable` when none answered in time.
"""

from __future__ import annotations

from typing import Any, TypeVar

from quorum.errors import MalformedMessageError
from quorum.rpc import messages
from quorum.rpc.client import ControllerChannel
from quorum.rpc.envelope import Body, RpcUnavailable
from quorum.rpc.message_codec import decode, encode

Response = TypeVar("Response")


class ControllerClient:
    """The controller as a broker sees it: one request object in, one response object out."""

    def __init__(self, channel: ControllerChannel) -> None:
        self._channel = channel

    @property
    def leader_id(self) -> int | None:
        """The voter that answered last, if it still did."""
        return self._channel.leader_id

    async def call(
        self,
        request: Any,
        answers: type[Response],
        *,
        timeout_s: float,
        attempt_timeout_s: float | None = None,
    ) -> Response:
        """Sends `request` to the active controller; the answer is an `answers`. Retried until `timeout_s`."""
        method = _method(request, answers)
        body = await self._channel.call(
            method, encode(request), timeout_s=timeout_s, attempt_timeout_s=attempt_timeout_s
        )
        return _decoded(method, answers, body)

    async def call_persistently(
        self, request: Any, answers: type[Response], *, timeout_s: float
    ) -> tuple[Response, bool]:
        """The same for a request of a client: never held up by a controller that stands still. The answer,
        and whether the request may have been carried out before it was answered so."""
        method = _method(request, answers)
        answered = await self._channel.call_persistently(method, encode(request), timeout_s=timeout_s)
        return _decoded(method, answers, answered.body), answered.in_doubt

    async def call_once(self, request: Any, answers: type[Response], *, timeout_s: float) -> Response:
        """One attempt, for a caller that has to know when the outcome is unknown."""
        method = _method(request, answers)
        return _decoded(
            method, answers, await self._channel.call_once(method, encode(request), timeout_s=timeout_s)
        )


def _method(request: Any, answers: type[Any]) -> str:
    method = messages.METHOD_OF[type(request)]
    assert messages.METHODS[method][1] is answers, f"{method} is not answered with a {answers.__name__}"
    return method


def _decoded(method: str, answers: type[Response], body: Body) -> Response:
    try:
        return decode(answers, body)
    except MalformedMessageError as error:
        raise RpcUnavailable(f"the controller's answer to {method} cannot be read: {error}") from error
