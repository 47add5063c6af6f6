"""Requests that meet a replica which is being made ready here: they wait a moment for it.

Between the metadata that gives a partition to this broker and the moment its log is made, or a new leader's epoch
is durable, the broker can only answer NOT_LEADER_OR_FOLLOWER, and not every client asks again. So requests
for such partitions wait, until the replica is ready, or they are known not to get it, or for `WAIT_MAX_S`; then
they are answered as always. Guarantees: nobody else waits; what waits to be appended is appended in the order of
arrival, also before what came later and would not have to wait. The replica manager says what is pending;
`ready_requests` has requests wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from kraft.broker.purgatory.wait import Purgatory, Wait
from partitions.topic_partition import TopicPartition

WAIT_MAX_S: Final = 1.0
WAITING_MAX: Final = 10_000
"""Requests that may wait at once; beyond it they are answered at once, but for those that come behind another."""

IsPending = Callable[[TopicPartition, bool], bool]
"""Whether a partition that is led from here has a replica which is being made ready: to be asked or, where true,
to be appended to."""


class PendingWait(Wait[None]):
    """One request that waits. It is `done` when it is its turn; it keeps its place until it was handled (`end`)."""

    __slots__ = ("_ahead", "_behind", "_unready", "appends", "keys")
    _purgatory: PendingReplicas

    def __init__(
        self,
        purgatory: PendingReplicas,
        keys: dict[TopicPartition, None],
        unready: Iterable[TopicPartition],
        ahead: dict[PendingWait, None],
        appends: bool,
    ) -> None:
        super().__init__(purgatory)
        self.keys = keys
        self.appends = appends
        self._unready = dict.fromkeys(unready)
        self._ahead = ahead
        self._behind: list[PendingWait] = []
        for other in ahead:
            other._behind.append(self)

    def is_ready(self, key: TopicPartition) -> None:
        """It need not wait for this one any more."""
        self._unready.pop(key, None)
        self._go_on()

    def expire(self) -> None:
        """It still waits for those ahead of it, whose time is over before."""
        self._unready.clear()
        self._go_on()

    def leave(self) -> None:
        """The request was handled, or its client is gone: it is the turn of those behind it."""
        self._purgatory.forget(self)
        for other in self._behind:
            other._ahead.pop(self, None)
            other._go_on()
        self._behind.clear()

    def _go_on(self) -> None:
        if not self._unready and not self._ahead:
            self.answer(None)


class PendingReplicas(Purgatory):
    """The replicas of one broker that are being made ready, and who waits for them."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, is_pending: IsPending, waiting_max: int = WAITING_MAX
    ) -> None:
        super().__init__(loop, waiting_max)
        self._is_pending = is_pending
        self._keys: dict[TopicPartition, None] = {}
        self._waiting: dict[TopicPartition, dict[PendingWait, None]] = {}
        self._last_append: dict[TopicPartition, PendingWait] = {}

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
        """Something has become of these: requests that need not wait for them any more go on."""
        for key in keys:
            for wait in list(self._waiting.get(key, ())):
                if not self._is_pending(key, wait.appends):
                    self._forget(key, wait)
                    wait.is_ready(key)
            if not self._is_pending(key, True):
                self._keys.pop(key, None)

    def wait(self, keys: Iterable[TopicPartition], timeout_s: float, *, appends: bool) -> PendingWait | None:
        """Has a request for these partitions wait; None if it need not. At most `WAIT_MAX_S`, too.

        `appends`: the request is to append to them, in the order in which requests were handed to this method.
        """
        wanted = dict.fromkeys(keys)
        unready = [key for key in wanted if key in self._keys and self._is_pending(key, appends)]
        last = self._last_append
        ahead = dict.fromkeys(last[key] for key in wanted if key in last) if appends and last else {}
        if not ahead and (not unready or timeout_s <= 0 or self.is_full):
            return None
        wait = PendingWait(self, wanted, unready, ahead, appends)
        wait.begin(min(max(timeout_s, 0.0), WAIT_MAX_S))
        for key in unready:
            self._waiting.setdefault(key, {})[wait] = None
        if appends:
            last.update(dict.fromkeys(wanted, wait))
        return wait

    def forget(self, wait: PendingWait) -> None:
        """The wait is over."""
        for key in wait.keys:
            self._forget(key, wait)
            if self._last_append.get(key) is wait:
                del self._last_append[key]

    def _forget(self, key: TopicPartition, wait: PendingWait) -> None:
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.pop(wait, None)
            if not waiting:
                del self._waiting[key]
