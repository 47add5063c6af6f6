"""Requests that wait until the markers of the transaction before them are written; bounded in number and in time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from kraft.coordinator.shard import Decisions, Moment, ShardTimers
from kraft.coordinator.transactions.context import TransactionSettings
from kraft.coordinator.transactions.requests import AddPartitions, EndTransaction, InitProducer


class Held(NamedTuple):
    token: int
    request: InitProducer | AddPartitions | EndTransaction
    until_ms: int
    """Monotonic."""


class WaitingRequests:
    """Those of one shard, by transactional id, in their order."""

    def __init__(
        self,
        settings: TransactionSettings,
        timers: ShardTimers,
        give_up: Callable[[Held, Moment, Decisions], None],
    ) -> None:
        """`give_up` answers what waited for too long; it waits no more then."""
        self._settings = settings
        self._timers = timers
        self._give_up = give_up
        self._held: dict[str, dict[int, Held]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def hold(
        self,
        token: int,
        request: InitProducer | AddPartitions | EndTransaction,
        until_ms: int | None,
        now: Moment,
    ) -> bool:
        """Has the request wait, until `until_ms` if it waited before. False where it has waited long enough, or too
        many wait already."""
        until_ms = now.monotonic_ms + self._settings.markers_wait_ms if until_ms is None else until_ms
        held = self._held.get(request.transactional_id, {})
        if (
            until_ms <= now.monotonic_ms
            or len(held) >= self._settings.waiting_per_id_max
            or self._count >= self._settings.waiting_max
        ):
            return False
        one = Held(token, request, until_ms)
        held[token] = one
        self._held[request.transactional_id] = held
        self._count += 1
        self._timers.set(_timer(token), until_ms, partial(self._expire, one))
        return True

    def release(self, transactional_id: str) -> list[Held]:
        """Those of the id wait no more; they are to be decided on."""
        held = list(self._held.pop(transactional_id, {}).values())
        self._count -= len(held)
        for one in held:
            self._timers.cancel(_timer(one.token))
        return held

    def _expire(self, one: Held, now: Moment, decisions: Decisions) -> None:
        transactional_id = one.request.transactional_id
        held = self._held[transactional_id]
        del held[one.token]
        if not held:
            del self._held[transactional_id]
        self._count -= 1
        self._give_up(one, now, decisions)


def _timer(token: int) -> tuple[str, int]:
    return "a request waits for markers", token
