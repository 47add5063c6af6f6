"""The judge of lag: which followers a leader drops from the ISR, and which it should (replica.lag.time.max.ms,
KIP-16).

Judges isr-by-lag, both ways:
- a leader does not drop a follower whose fetches prove that it was at the log's end within that time (requests of a
  session count, even if they did not name the partition, KIP-227), or that joined the ISR within it;
- while it goes on appending, a leader does not keep a member that was not at the end for longer, since writes with
  acks=-1 wait for it. Nor does it take back a follower that it dropped and that has not moved since.

Pure: `probes_leader` feeds it with followers' fetches and leaders' appends. Times are the leader's own monotonic ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kraft.chaos.history import TopicKey
from kraft.chaos.verdict import Verdicts

ISR_BY_LAG = "isr-by-lag"
STEP_MAX_MS = 200
"""The longest gap between two appends that counts: a leader that stood still could drop no follower meanwhile."""


class SessionFetch(NamedTuple):
    """The last request of a follower's fetch session, and its time."""

    offset: int
    at_ms: int


class Standing:
    """One follower, by the fetches that its leader has seen."""

    __slots__ = ("broker_epoch", "caught_up_ms", "dropped_at", "end_seen", "fetched_ms", "late_ms", "offset")

    def __init__(self, caught_up_ms: int | None = None) -> None:
        self.offset = -1
        self.broker_epoch: int | None = None
        """The broker epoch of the incarnation that fetched last."""
        self.end_seen = -1
        """The leader's log end at its last fetch."""
        self.fetched_ms: int | None = None
        self.caught_up_ms = caught_up_ms
        """When it was last at the leader's log end; None: never yet."""
        self.dropped_at: int | None = None
        """Its position when its leader last proposed an ISR without it; None once it has moved."""
        self.late_ms = 0
        """How long it has overstayed in the ISR while its leader was at work."""

    def forget(self) -> None:
        """Drops all evidence that it is caught up."""
        self.caught_up_ms = self.fetched_ms = None
        self.late_ms = 0


class LeaderEpoch:
    """One leader epoch of one partition at its leader."""

    __slots__ = ("appended_ms", "epoch", "lag_max_ms", "name", "standings")

    def __init__(self, name: str, epoch: int, lag_max_ms: int, members: Iterable[int], now_ms: int) -> None:
        self.name = name
        self.epoch = epoch
        self.lag_max_ms = lag_max_ms
        self.standings = {member: Standing(now_ms) for member in members}
        """The first members have the whole time until their first fetch."""
        self.appended_ms = now_ms

    def known(self, members: Iterable[int]) -> list[tuple[int, Standing]]:
        """Those members that are followers now, with their standings."""
        return [(member, self.standings[member]) for member in members if member in self.standings]


class IsrByLag:
    """All partitions that are led, by leader."""

    def __init__(self, verdicts: Verdicts, name: Callable[[TopicKey], str]) -> None:
        self._verdicts = verdicts
        self._name = name
        self._led: dict[tuple[int, TopicKey], LeaderEpoch] = {}

    def leads(
        self, node: int, key: TopicKey, epoch: int, isr: Iterable[int], lag_max_ms: int, now_ms: int
    ) -> None:
        """Takes a node that leads from this epoch on."""
        self._led[node, key] = LeaderEpoch(self._name(key), epoch, lag_max_ms, isr, now_ms)

    @staticmethod
    def assigned(led: LeaderEpoch, followers: Iterable[int]) -> None:
        """Takes the followers from now on; the leader forgets the others."""
        staying = set(followers)
        for gone in [follower for follower in led.standings if follower not in staying]:
            del led.standings[gone]

    def epoch(self, node: int, key: TopicKey, epoch: int) -> LeaderEpoch | None:
        """The epoch that a node leads in; None if its beginning was not seen."""
        found = self._led.get((node, key))
        return None if found is None or found.epoch != epoch else found

    def joined(self, led: LeaderEpoch, members: Iterable[int], now_ms: int) -> None:
        """Takes followers that the controller put into the ISR: they have the whole time to reach the log's end."""
        for member, standing in led.known(members):
            if standing.offset == standing.dropped_at:
                self._verdicts.violated(
                    ISR_BY_LAG,
                    f"{led.name}: broker {member} is in the ISR of epoch {led.epoch} again, though it stands at"
                    f" {standing.offset}, where it was dropped for lagging",
                )
            _caught_up(standing, now_ms)
            standing.late_ms = 0

    @staticmethod
    def left(led: LeaderEpoch, members: Iterable[int]) -> None:
        """Takes members that the controller dropped from the ISR: they have to prove anew that they are caught up."""
        for _, standing in led.known(members):
            standing.forget()

    @staticmethod
    def fetched(
        led: LeaderEpoch, follower: int, offset: int, end: int, now_ms: int, broker_epoch: int
    ) -> None:
        """Takes a follower's fetch from `offset` on, with the leader's log end then."""
        standing = led.standings.get(follower)
        if standing is None:
            standing = led.standings[follower] = Standing()
        if standing.broker_epoch != broker_epoch:
            if standing.broker_epoch is not None:
                standing.forget()
            standing.broker_epoch = broker_epoch
        if offset >= end:
            _caught_up(standing, now_ms)
        elif standing.fetched_ms is not None and offset >= standing.end_seen:
            _caught_up(standing, standing.fetched_ms)
        if offset != standing.dropped_at:
            standing.dropped_at = None
        standing.offset, standing.fetched_ms = offset, now_ms
        standing.end_seen = max(standing.end_seen, end)
        if standing.caught_up_ms is not None and now_ms - standing.caught_up_ms <= led.lag_max_ms:
            standing.late_ms = 0

    @staticmethod
    def end_moves(led: LeaderEpoch, follower: int, end: int, asked: SessionFetch) -> None:
        """Notes that the leader's log is about to grow beyond `end`: a session's requests so far were fetches
        there."""
        standing = led.standings.get(follower)
        if standing is None or standing.fetched_ms is None or not asked.offset == standing.offset == end:
            return
        if asked.at_ms > standing.fetched_ms:
            _caught_up(standing, asked.at_ms)
            standing.fetched_ms, standing.end_seen = asked.at_ms, end

    def appended(self, led: LeaderEpoch, members: Iterable[int], end: int, now_ms: int) -> None:
        """Takes an append of the leader; its log ends at `end`, and it may drop the `members` of its ISR now."""
        step_ms = min(now_ms - led.appended_ms, STEP_MAX_MS)
        led.appended_ms = now_ms
        for member, standing in led.known(members):
            if standing.caught_up_ms is None:
                continue
            if standing.offset == end or now_ms - standing.caught_up_ms <= led.lag_max_ms:
                standing.late_ms = 0
                continue
            standing.late_ms += step_ms
            if standing.late_ms > led.lag_max_ms:
                self._verdicts.violated(
                    ISR_BY_LAG,
                    f"{led.name}: broker {member} stays in the ISR of epoch {led.epoch}; it was caught up"
                    f" {now_ms - standing.caught_up_ms} ms ago, and {led.lag_max_ms} are allowed",
                )

    @staticmethod
    def cannot_drop(led: LeaderEpoch, now_ms: int) -> None:
        """Takes an append of a leader that waits for the controller's answer about its ISR."""
        led.appended_ms = now_ms
        for standing in led.standings.values():
            standing.late_ms = 0

    def dropped(self, led: LeaderEpoch, members: Iterable[int], end: int, now_ms: int) -> None:
        """Takes a leader's proposal of an ISR without these lagging members; its log ends at `end`."""
        for member, standing in led.known(members):
            standing.dropped_at = standing.offset
            if standing.caught_up_ms is None:
                continue
            standing.late_ms = 0
            behind_ms = now_ms - standing.caught_up_ms
            if standing.offset == end or behind_ms <= led.lag_max_ms:
                self._verdicts.violated(
                    ISR_BY_LAG,
                    f"{led.name}: broker {member}, at {standing.offset} of {end}, is dropped from the ISR of epoch"
                    f" {led.epoch}; it was caught up {behind_ms} ms ago, and {led.lag_max_ms} are allowed",
                )


def _caught_up(standing: Standing, at_ms: int) -> None:
    if standing.caught_up_ms is None or at_ms > standing.caught_up_ms:
        standing.caught_up_ms = at_ms
