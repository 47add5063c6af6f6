"""Typed calls from a broker to the active controller, over `quorum.rpc`.

Every method may be repeated: epochs fence it. Raises `RpcError` with Kafka's error name when the
controller refuses, `RpcUnavailable` when none answered in time.
"""

from __future__ import annotations

from typing import TypeVar

from quorum.errors import MalformedMessageError
from quorum.rpc.client import ControllerChannel
from quorum.rpc.envelope import Body, RpcUnavailable
from quorum.rpc.message_codec import Answer, decode_response, encode
from quorum.rpc.messages import ControllerResponse, RpcRequest

Response = TypeVar("Response", bound=ControllerResponse)


class ControllerClient:
    """The controller as a broker sees it: one request object in, one response object out."""

    def __init__(self, channel: ControllerChannel) -> None:
        self._channel = channel

    @property
    def leader_id(self) -> int | None:
        """The voter that answered last, if it still did."""
        return self._channel.leader_id

    async def call(
        self, request: RpcRequest[Response], *, timeout_s: float, attempt_timeout_s: float | None = None
    ) -> Response:
        """Sends `request` to the active controller. Retried until `timeout_s`."""
        body = await self._channel.call(
            request.RPC.method, encode(request), timeout_s=timeout_s, attempt_timeout_s=attempt_timeout_s
        )
        return _decoded(request, body).response

    async def call_persistently(
        self, request: RpcRequest[Response], *, timeout_s: float
    ) -> tuple[Answer[Response], bool]:
        """The same for a request of a client: never held up by a controller that stands still. The answer,
        and whether the request may have been carried out before it was answered so."""
        answered = await self._channel.call_persistently(
            request.RPC.method, encode(request), timeout_s=timeout_s
        )
        return _decoded(request, answered.body), answered.in_doubt

    async def call_once(self, request: RpcRequest[Response], *, timeout_s: float) -> Response:
        """One attempt, for a caller that has to know when the outcome is unknown."""
        body = await self._channel.call_once(request.RPC.method, encode(request), timeout_s=timeout_s)
        return _decoded(request, body).response


def _decoded(request: RpcRequest[Response], body: Body) -> Answer[Response]:
    try:
        return decode_response(request, body)
    except MalformedMessageError as error:
        method = request.RPC.method
        raise RpcUnavailable(f"the controller's answer to {method} cannot be read: {error}") from error
