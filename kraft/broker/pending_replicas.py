"""Requests that meet a replica which is being made ready here: they wait a moment for it.

Between the metadata that gives a partition to this broker and the moment its log is made, or a new leader's epoch
is durable, the broker can only answer NOT_LEADER_OR_FOLLOWER, and not every client asks again. So requests
for such partitions wait, until the replica is ready, or they are known not to get it, or for `WAIT_MAX_S`; then
they are answered as always. Guarantees: nobody else waits, and nothing is polled; what waits to be appended is
appended in the order of arrival, also before what came later and would not have to wait. `ReplicaLogs` says what
is pending; `ready_requests` has requests wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from partitions.topic_partition import TopicPartition

WAIT_MAX_S: Final = 1.0
WAITING_MAX: Final = 10_000
"""Requests that may wait at once; beyond it they are answered at once, but for those that come behind another."""

IsPending = Callable[[TopicPartition, bool], bool]
"""Whether a partition that is led from here has a replica which is being made ready: to be asked or, where true,
to be appended to."""


class Wait:
    """One request that waits. `ready` is done when it is its turn; `end` follows, whatever came of it."""

    __slots__ = ("_ahead", "_behind", "_pending", "_timer", "appends", "has_ended", "keys", "ready")

    def __init__(self, keys: dict[TopicPartition, None], appends: bool, ready: asyncio.Future[None]) -> None:
        self.keys = keys
        self.appends = appends
        self.ready = ready
        self.has_ended = False
        self._pending: dict[TopicPartition, None] = {}
        self._ahead: dict[Wait, None] = {}
        self._behind: list[Wait] = []
        self._timer: asyncio.TimerHandle | None = None

    def begin(
        self,
        pending: Iterable[TopicPartition],
        ahead: Iterable[Wait],
        timer: asyncio.TimerHandle,
    ) -> None:
        self._pending.update(dict.fromkeys(pending))
        for other in ahead:
            self._ahead[other] = None
            other._behind.append(self)
        self._timer = timer

    def is_ready(self, key: TopicPartition) -> None:
        """It need not wait for this one any more."""
        self._pending.pop(key, None)
        self._go_on()

    def give_up(self) -> None:
        """Its time is over. It still waits for those ahead of it, whose time is over before."""
        self._pending.clear()
        self._go_on()

    def leave(self) -> None:
        """It was its turn, or its client is gone: those behind it go on."""
        if self._timer is not None:
            self._timer.cancel()
        for other in self._behind:
            other._ahead.pop(self, None)
            other._go_on()
        self._behind.clear()

    def _go_on(self) -> None:
        if not self._pending and not self._ahead and not self.ready.done():
            self.ready.set_result(None)


class PendingReplicas:
    """The replicas of one broker that are being made ready, and who waits for them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, is_pending: IsPending) -> None:
        self._loop = loop
        self._is_pending = is_pending
        self._keys: dict[TopicPartition, None] = {}
        self._waiting: dict[TopicPartition, dict[Wait, None]] = {}
        self._last_append: dict[TopicPartition, Wait] = {}
        self.count = 0

    def __bool__(self) -> bool:
        """Whether there is anything that a request may have to wait for."""
        return bool(self._keys or self._last_append)

    def expect(self, key: TopicPartition) -> None:
        """This replica is being made ready, perhaps; `settle` is called when that is over."""
        self._keys[key] = None
        self.settle([key])

    def expect_all(self, keys: Iterable[TopicPartition]) -> None:
        """As `expect`, of many at once that are being made ready for sure."""
        self._keys.update(dict.fromkeys(keys))

    def settle(self, keys: Iterable[TopicPartition]) -> None:
        """Something has become of these: whoever need not wait for them any more goes on."""
        for key in keys:
            for wait in list(self._waiting.get(key, ())):
                if not self._is_pending(key, wait.appends):
                    self._forget(key, wait)
                    wait.is_ready(key)
            if not self._is_pending(key, True):
                self._keys.pop(key, None)

    def wait(self, keys: Iterable[TopicPartition], timeout_s: float, *, appends: bool) -> Wait | None:
        """Has a request for these partitions wait; None if it need not. At most `WAIT_MAX_S`, too.

        `appends`: the request is to append to them, in the order in which requests were handed to this method.
        """
        wanted = dict.fromkeys(keys)
        pending = [key for key in wanted if key in self._keys and self._is_pending(key, appends)]
        last = self._last_append
        ahead = dict.fromkeys(last[key] for key in wanted if key in last) if appends and last else {}
        if not ahead and (not pending or timeout_s <= 0 or self.count >= WAITING_MAX):
            return None
        wait = Wait(wanted, appends, self._loop.create_future())
        timer = self._loop.call_later(min(max(timeout_s, 0.0), WAIT_MAX_S), wait.give_up)
        wait.begin(pending, ahead, timer)
        self.count += 1
        for key in pending:
            self._waiting.setdefault(key, {})[wait] = None
        if appends:
            last.update(dict.fromkeys(wanted, wait))
        return wait

    def end(self, wait: Wait) -> None:
        """The request was handled, or its client is gone: it is the turn of those behind it. Once is enough."""
        if wait.has_ended:
            return
        wait.has_ended = True
        self.count -= 1
        for key in wait.keys:
            self._forget(key, wait)
            if self._last_append.get(key) is wait:
                del self._last_append[key]
        wait.leave()

    def _forget(self, key: TopicPartition, wait: Wait) -> None:
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.pop(wait, None)
            if not waiting:
                del self._waiting[key]
