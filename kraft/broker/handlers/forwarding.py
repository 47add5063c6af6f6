"""Requests of clients that the active controller decides: the broker forwards them.

`forward` stays with the quorum while its controllers change, and tells which errors of an answer may be echoes of
the request itself. A `Split` is for requests that name several things: the broker refuses some of them itself,
forwards the others, and merges the results in the order of the request. A `Refusal` is of a whole request, of one
thing, or of a call that failed; each API writes it into its answer in one function. The controller answers when a
change is committed; `catch_up` then waits a little longer until this broker has the metadata of that offset, so that
a client that asks the same broker next is not told the old state.

Requests are forwarded as typed calls, bounded in items and characters. The controller checks them once more, and
gets no request that is much larger than the client's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from kraft.broker.services import BrokerServices
from kraft.protocol.errors import ErrorCode
from quorum.rpc.envelope import RpcError, RpcUnavailable
from quorum.rpc.messages import ControllerResponse, RpcRequest

Item = TypeVar("Item")
Result = TypeVar("Result")
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


class Refusal(NamedTuple):
    """Why something that a client asked for is not done. `once`: the sentence is told with the first thing alone,
    lest an answer be many times larger than the request."""

    code: ErrorCode
    message: str | None
    once: bool = False

    def of(self, items: Iterable[Item]) -> Iterator[tuple[Item, ErrorCode, str | None]]:
        """Each thing that is refused so, and what is told of it."""
        for number, item in enumerate(items):
            yield item, self.code, None if self.once and number else self.message


_UNANSWERED = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller did not answer for this")


@dataclass(frozen=True, slots=True)
class Forwarded(Generic[Response]):
    """What the active controller answered to a request of a client."""

    request: RpcRequest[Response]
    response: Response
    offset: int
    """The committed metadata offset that has everything which the response tells of."""
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
) -> Forwarded[Response] | Refusal:
    """Has the active controller decide, though it may change within the client's time. A refusal is of the call."""
    try:
        answer, in_doubt = await services.controller.call_persistently(request, timeout_s=timeout_s)
    except RpcError as error:
        return refusal(request, error)
    return Forwarded(request, answer.response, answer.offset, in_doubt)


class Split(Generic[Item, Result]):
    """The items that one request names, in its order: some are refused here, the others go on.

    A size limit, a name that is there twice and a right that its client has not are all such refusals.
    """

    def __init__(
        self,
        items: Iterable[Item],
        problem: Callable[[Item], Refusal | None],
        refuse: Callable[[Iterable[Item], Refusal], list[Result]],
    ) -> None:
        """`problem` says why an item is refused, None if it goes on; `refuse` makes the results of refusals."""
        self._refuse = refuse
        self._refused: list[Result | None] = []
        """A result for each item; None of those that go on."""
        self.allowed: list[Item] = []
        for item in items:
            found = problem(item)
            if found is None:
                self._refused.append(None)
                self.allowed.append(item)
            else:
                self._refused += refuse((item,), found)

    async def forward(
        self,
        services: BrokerServices,
        call: RpcRequest[Response],
        timeout_s: float,
        results: Callable[[Forwarded[Response]], Iterable[Result | None]],
        *,
        changes: bool = True,
    ) -> list[Result]:
        """The results of all items. `call` asks for those that are allowed and is not made if there are none;
        `results` is one for each, in their order. Unless it `changes` nothing, this broker then catches up."""
        if not self.allowed:
            return self.merged(())
        forwarded = await forward(services, call, timeout_s)
        if isinstance(forwarded, Refusal):
            return self.merged(self._refuse(self.allowed, forwarded))
        if changes:
            await catch_up(services, forwarded.offset)
        return self.merged(results(forwarded))

    def merged(self, results: Iterable[Result | None]) -> list[Result]:
        """Those of the allowed items (None for one without a result) and of the refused ones, in order."""
        answered = list(results)
        answered += self._refuse(self.allowed[len(answered) :], _UNANSWERED)
        of_allowed = iter(answered)
        merged = (next(of_allowed) if refused is None else refused for refused in self._refused)
        return [result for result in merged if result is not None]


async def catch_up(services: BrokerServices, offset: int) -> None:
    """Waits a moment until this broker's own metadata is at `offset`, and for what they make of its replicas.

    Not an error if it takes longer. A client that uses its new topic at once then seldom has to ask again:
    the other brokers make their replicas at the same time.
    """
    try:
        async with asyncio.timeout(CATCH_UP_TIMEOUT_S):
            await services.loader.wait_until(lambda image: image.offset >= offset)
            await services.replicas.settled()
    except TimeoutError:
        return


def refusal(request: RpcRequest[Response], error: RpcError) -> Refusal:
    """What a client is told when the whole call failed. Without an answer it is not known whether a
    change was made, and that is what REQUEST_TIMED_OUT says.
    """
    message = error.message
    if error.in_doubt and error.code in request.RPC.own_traces:
        message = f"{_DOUBT}: {message}"
    elif not isinstance(error, RpcUnavailable):
        return Refusal(error_code(error.code), message)
    doubt = "the change may or may not have been made: " if request.RPC.writes else ""
    return Refusal(ErrorCode.REQUEST_TIMED_OUT, doubt + message)


def error_code(name: str) -> ErrorCode:
    """Kafka's error of that name; UNKNOWN_SERVER_ERROR for a name that is not Kafka's."""
    return ErrorCode.__members__.get(name, ErrorCode.UNKNOWN_SERVER_ERROR)


def timeout_s(timeout_ms: int) -> float:
    """A client's timeout in seconds, bounded both ways."""
    return min(max(timeout_ms, 0) / 1000, TIMEOUT_MAX_S) or 0.001


def too_many(count: int, what: str, at_most: int = MAX_ITEMS) -> Refusal | None:
    """The refusal of a request that names more than `at_most` things; None if it does not."""
    if count <= at_most:
        return None
    sentence = f"the request names {count} {what}; send it in parts of at most {at_most}"
    return Refusal(ErrorCode.POLICY_VIOLATION, sentence, once=True)


def too_long(texts: Iterable[str]) -> Refusal | None:
    """The refusal of a request whose names and values, as often as they would be forwarded, are too long."""
    characters = sum(map(len, texts))
    if characters <= MAX_FORWARDED_CHARACTERS:
        return None
    sentence = (
        f"the request's names and values have {characters} characters;"
        f" send it in parts of at most {MAX_FORWARDED_CHARACTERS}"
    )
    return Refusal(ErrorCode.POLICY_VIOLATION, sentence, once=True)
