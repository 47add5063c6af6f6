"""A call that stays with the quorum while its controllers change: for a request that an operator made once.

A controller that stands still holds nobody up: the others are asked whether one of them leads by now. No voter is
asked again before it has answered: a slow one is not given the same work twice. The caller is told whether an
earlier attempt may have done the work already. `ControllerChannel` makes such calls for the requests that brokers
forward for clients.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple

from quorum.rpc.envelope import ELSEWHERE, Body, RpcError, RpcUnavailable

PATIENCE_S = 1.0
"""So long one voter is waited for before another one is asked as well."""
PAUSE_FIRST_S = 0.02
PAUSE_MAX_S = 0.25
"""Between two rounds in which every voter was asked, and none leads; a new leader waits so long for its callers."""

Ask = Callable[[int, float], Awaitable[Body]]
"""Has one voter decide, within seconds: what it answers. Raises RpcError."""
NextVoter = Callable[[Collection[int]], int | None]
"""The voter to be asked next, of those that are not in the collection."""


class Answered(NamedTuple):
    """An answer. `in_doubt`: another attempt may have been executed as well, before this one or after."""

    body: Body
    in_doubt: bool


async def call_persistently(
    ask: Ask, next_voter: NextVoter, *, what: str, timeout_s: float, rng: random.Random
) -> Answered:
    """Raises RpcError as the active controller refused it, RpcUnavailable if none answered in `timeout_s`
    seconds; its `in_doubt` covers all attempts."""
    attempts = _Attempts(ask)
    try:
        async with asyncio.timeout(timeout_s):
            return await _until_answered(attempts, next_voter, timeout_s, rng)
    except TimeoutError:
        in_doubt = attempts.in_doubt or attempts.are_open
        raise RpcUnavailable(
            f"no active controller answered {what} in {timeout_s:g} s", in_doubt=in_doubt
        ) from None
    finally:
        await attempts.close()


async def _until_answered(
    attempts: _Attempts, next_voter: NextVoter, timeout_s: float, rng: random.Random
) -> Answered:
    pause_s = PAUSE_FIRST_S
    asked: set[int] = set()
    while True:
        voter = next_voter(asked | attempts.voters)
        if voter is not None:
            asked.add(voter)
            attempts.begin(voter, timeout_s)
            await attempts.wait(PATIENCE_S)
        else:
            asked.clear()
            if attempts.are_open:
                await attempts.wait(PATIENCE_S)
            else:
                await asyncio.sleep(pause_s * rng.uniform(0.8, 1.2))
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
        answer = attempts.take_answer()
        if answer is not None:
            return answer


class _Attempts:
    """What was asked and is not answered yet, at most once of each voter."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._open: dict[asyncio.Task[Body], int] = {}
        self.in_doubt = False
        """Whether an attempt that failed may have been executed."""

    @property
    def voters(self) -> set[int]:
        return set(self._open.values())

    @property
    def are_open(self) -> bool:
        return bool(self._open)

    def begin(self, voter: int, timeout_s: float) -> None:
        async def ask() -> Body:
            return await self._ask(voter, timeout_s)

        self._open[asyncio.get_running_loop().create_task(ask(), name=f"controller-call-{voter}")] = voter

    async def wait(self, timeout_s: float) -> None:
        """Until one of them is over, or the time is."""
        await asyncio.wait(self._open, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)

    def take_answer(self) -> Answered | None:
        """What a controller has answered; None if there is nothing but failures that point elsewhere.
        Raises RpcError for a refusal."""
        decided: asyncio.Task[Body] | None = None
        for task in [task for task in self._open if task.done()]:
            del self._open[task]
            error = task.exception()
            if isinstance(error, RpcError) and error.code in ELSEWHERE:
                self.in_doubt |= error.in_doubt
            elif decided is None:
                decided = task
            else:
                self.in_doubt = True
        if decided is None:
            return None
        in_doubt = self.in_doubt or self.are_open
        error = decided.exception()
        if isinstance(error, RpcError):
            error.in_doubt |= in_doubt
        return Answered(decided.result(), in_doubt)

    async def close(self) -> None:
        """Ends what is open."""
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
