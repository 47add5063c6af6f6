"""What handlers share that have the active controller decide for a client.

`forward` stays with the quorum while its controllers change, and what it returns says of what the answer may be
an echo of the request itself. A call that fails as a whole is told to the client by `refusal`. Answers come
when a change is committed; `catch_up` then waits a little longer until this broker knows it too, so that a
client that asks the same broker next is not told the old state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kraft.broker.services import BrokerServices
from kraft.protocol.errors import ErrorCode
from quorum.rpc.envelope import RpcError, RpcUnavailable
from quorum.rpc.messages import ControllerResponse, RpcRequest

Response = TypeVar("Response", bound=ControllerResponse)

TIMEOUT_MAX_S = 60.0
CATCH_UP_TIMEOUT_S = 2.0
MAX_FORWARDED_CHARACTERS = 4 * 1024 * 1024
"""Names and values in one call; in UTF-8 they fit into what the controller's listener accepts."""
MAX_ITEMS = 10_000
"""Topics, partitions, configs or features that one request may name, as in Kafka's controller."""
MAX_REPLICAS = 50_000
"""In the assignments of one request."""

_DOUBT = "the controller was replaced meanwhile, and the change may have been made by this very request"


@dataclass(frozen=True, slots=True)
class Forwarded(Generic[Response]):
    """What the active controller answered to a request of a client."""

    request: RpcRequest[Response]
    answer: Response
    in_doubt: bool
    """Whether an attempt before this one may have been carried out."""

    def outcome(self, error: str, message: str | None) -> tuple[ErrorCode, str | None]:
        """What the client is told of one thing that it asked for. Nobody is told that something is in the
        way which the same request may have put there."""
        if self.in_doubt and error in self.request.RPC.own_traces:
            return ErrorCode.REQUEST_TIMED_OUT, f"{_DOUBT}: {message}"
        return error_code(error), message


async def forward(
    services: BrokerServices, request: RpcRequest[Response], timeout_s: float
) -> Forwarded[Response]:
    """Has the active controller decide, whoever it becomes within the client's time. Raises RpcError."""
    try:
        answer, in_doubt = await services.controller.call_persistently(request, timeout_s=timeout_s)
    except RpcError as error:
        if error.in_doubt and error.code in request.RPC.own_traces:
            raise RpcUnavailable(f"{_DOUBT}: {error.message}") from error
        raise
    return Forwarded(request, answer, in_doubt)


async def catch_up(services: BrokerServices, known: Callable[[], bool]) -> None:
    """Waits a moment for this broker's own metadata, and for what they make of its replicas.

    Not an error if it takes longer. A client that uses its new topic at once then seldom has to ask again:
    the other brokers make their replicas at the same time.
    """
    try:
        async with asyncio.timeout(CATCH_UP_TIMEOUT_S):
            await services.loader.wait_until(lambda _: known())
            await services.replicas.settled()
    except TimeoutError:
        return


def refusal(error: RpcError) -> tuple[ErrorCode, str]:
    """What a client is told when the whole call failed. Without an answer it is not known whether the
    change was made, and that is what REQUEST_TIMED_OUT says.
    """
    if isinstance(error, RpcUnavailable):
        return ErrorCode.REQUEST_TIMED_OUT, f"the change may or may not have been made: {error.message}"
    return error_code(error.code), error.message


def failed_query(error: RpcError) -> tuple[ErrorCode, str]:
    """The same for a call that changes nothing."""
    if isinstance(error, RpcUnavailable):
        return ErrorCode.REQUEST_TIMED_OUT, error.message
    return error_code(error.code), error.message


def error_code(name: str) -> ErrorCode:
    """Kafka's error of that name; UNKNOWN_SERVER_ERROR for a name that is not Kafka's."""
    return ErrorCode.__members__.get(name, ErrorCode.UNKNOWN_SERVER_ERROR)


def timeout_s(timeout_ms: int) -> float:
    """A client's timeout in seconds, bounded both ways."""
    return min(max(timeout_ms, 0) / 1000, TIMEOUT_MAX_S) or 0.001


def too_many(count: int, what: str, at_most: int = MAX_ITEMS) -> tuple[ErrorCode, str] | None:
    """The refusal of a request that names more than `at_most` things; None if it does not.

    Where an answer can say so once it does, instead of once for each thing, lest it be many times larger
    than the request.
    """
    if count <= at_most:
        return None
    return (
        ErrorCode.POLICY_VIOLATION,
        f"the request names {count} {what}; send it in parts of at most {at_most}",
    )


def too_long(texts: Iterable[str]) -> tuple[ErrorCode, str] | None:
    """The refusal of a request whose names and values, as often as they would be forwarded, are too long."""
    characters = sum(map(len, texts))
    if characters <= MAX_FORWARDED_CHARACTERS:
        return None
    return (
        ErrorCode.POLICY_VIOLATION,
        f"the request's names and values have {characters} characters;"
        f" send it in parts of at most {MAX_FORWARDED_CHARACTERS}",
    )
