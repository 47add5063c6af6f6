"""Coordinators of groups and of transactional ids, for commands: each question goes to the broker that has the answer.

A coordinator that moves or is being loaded is asked again for `COORDINATOR_TIMEOUT_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar, cast

import typer

from kraft.cli.shared.admin_client import AdminClient, BrokerAwayError, raise_for
from kraft.cli.shared.output import NAMED_MAX, complain
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.protocol.schemas.find_coordinator import (
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kraft.user_error import EXIT_FAILED, EXIT_UNDECIDED, UserError

FIND_COORDINATOR_VERSION = 4
COORDINATOR_TIMEOUT_S = 20.0
RETRY_WAIT_S = 0.2
MOVING = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Nothing was done, and a coordinator will be there soon."""
_UNDECIDED = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION})
"""After these, a change may have been made or not."""
_NAMES = {CoordinatorType.GROUP: "group", CoordinatorType.TRANSACTION: "transactional id"}

Answer = TypeVar("Answer", bound=Message)
Failure = tuple[ErrorCode, str]
"""Why something was refused, and a sentence."""


class Coordinators:
    """The coordinators of one kind of key, asked through one admin client."""

    def __init__(self, admin: AdminClient, kind: CoordinatorType) -> None:
        self._admin = admin
        self._kind = kind
        self.found: dict[str, int] = {}
        """The broker's id by key, of those that were asked."""

    async def ask(
        self,
        key: str,
        request: Message,
        version: int,
        kind: type[Answer],
        code_of: Callable[[Answer], int],
        again: frozenset[ErrorCode] = MOVING,
        failed: str = "no coordinator answers",
    ) -> Answer:
        """The answer of the key's coordinator. `code_of` is the code in it that may say that it moves, `kind` what the
        answer is; `again` and `failed` are those of `until_settled`. Raises UserError where time is over."""

        async def ask() -> Message:
            return await self._admin.request_of(await self._find(key), request, version=version)

        answer = await until_settled(ask, cast("Callable[[Message], int]", code_of), again, failed)
        return cast("Answer", answer)

    async def _find(self, key: str) -> int:
        """The coordinator's id. Raises _MovingError, UserError."""
        request = FindCoordinatorRequest(key_type=self._kind, coordinator_keys=[key])
        answer = cast(
            "FindCoordinatorResponse", await self._admin.request(request, version=FIND_COORDINATOR_VERSION)
        )
        found = answer.coordinators[0]
        if found.error_code in MOVING:
            raise _MovingError(ErrorCode(found.error_code))
        what = f"the coordinator of {_NAMES[self._kind]} {key} was not found"
        raise_for(found.error_code, found.error_message, what)
        self.found[key] = found.node_id
        return found.node_id


class _MovingError(Exception):
    """There is no coordinator just now."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(f"{code.message} ({code.name})")


async def until_settled(
    ask: Callable[[], Awaitable[Message]],
    code_of: Callable[[Message], int],
    again: frozenset[ErrorCode] = MOVING,
    failed: str = "no coordinator answers",
) -> Message:
    """The first answer whose code is none of `again`: by default, that the coordinator is elsewhere, or not ready.
    Raises UserError, undecided, when the time is over, with `failed` and the last reason."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + COORDINATOR_TIMEOUT_S
    while True:
        reason: Exception
        try:
            answer = await ask()
            code = code_of(answer)
            if code not in again:
                return answer
            reason = _MovingError(ErrorCode(code))
        except (_MovingError, BrokerAwayError) as error:
            reason = error
        if loop.time() >= deadline_s:
            raise UserError(f"{failed}: {reason}", EXIT_UNDECIDED)
        await asyncio.sleep(RETRY_WAIT_S)


def failure_of(code: int) -> Failure:
    """With Kafka's sentence."""
    error = ErrorCode(code)
    return error, error.message


def end_with(failures: Mapping[str, Failure]) -> None:
    """Tells what was refused, each reason once, and ends with the exit code of that; returns if nothing was."""
    concerned: dict[Failure, list[str]] = {}
    for name, failure in failures.items():
        concerned.setdefault(failure, []).append(name)
    for (code, text), names in concerned.items():
        more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
        complain(f"{', '.join(names[:NAMED_MAX])}{more}: {text} ({code.name})")
    if failures:
        codes = {code for code, _ in failures.values()}
        raise typer.Exit(EXIT_UNDECIDED if codes <= _UNDECIDED else EXIT_FAILED)
