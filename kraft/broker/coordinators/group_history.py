"""How the lag of groups went over the last hour, by the minute, and which groups stand still.

`GroupLag` gives it each of its rounds. It keeps `GROUPS_MAX` groups, those that lag most when there is no room for all,
and forgets what a round does not have any more. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kraft.coordinator.groups.lag import Row, ShardLags
from quorum.steps import ROWS_PER_STEP, Steps

GROUPS_MAX: Final = 1_000
POINTS: Final = 60
MINUTE_MS: Final = 60_000
STILL_MS: Final = 60_000
"""A group that has committed nothing for so long, and lags, stands still."""


class GroupTotals(NamedTuple):
    """A group in all its partitions. Lags are None where none is known."""

    topics: int
    offsets: int
    lag: int | None
    lag_s: float | None
    position: int
    """The sum of what it has committed: who goes on, it grows."""


@dataclass(slots=True)
class _Group:
    totals: GroupTotals
    moved_at_ms: int
    points: deque[tuple[int, int | None, float | None]] = field(default_factory=lambda: deque(maxlen=POINTS))
    """Minute, lag, lag in seconds."""


class GroupHistory:
    """Of the groups that one broker coordinates."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}

    def take(self, shards: Iterable[ShardLags], now_ms: int) -> Steps[None]:
        """One round, whole, in steps."""
        found: dict[str, GroupTotals] = {}
        rows = 0
        for shard in shards:
            for group_id, of_group in shard.groups.items():
                found[group_id] = totals(of_group)
                rows += len(of_group)
                if rows >= ROWS_PER_STEP:
                    rows = 0
                    yield
        if len(found) > GROUPS_MAX:
            kept = sorted(found, key=lambda one: -(found[one].lag or 0))[:GROUPS_MAX]
            found = {group_id: found[group_id] for group_id in kept}
        self._groups = {group_id: self._next(group_id, one, now_ms) for group_id, one in found.items()}

    def _next(self, group_id: str, now: GroupTotals, now_ms: int) -> _Group:
        group = self._groups.get(group_id)
        if group is None:
            group = _Group(now, now_ms)
        elif now.position != group.totals.position or not now.lag or not group.totals.lag:
            group.moved_at_ms = now_ms
        group.totals = now
        minute = now_ms // MINUTE_MS
        if group.points and group.points[-1][0] == minute:
            group.points.pop()
        group.points.append((minute, now.lag, now.lag_s))
        return group

    def clear(self) -> None:
        self._groups = {}

    def of_group(self, group_id: str) -> GroupTotals | None:
        """As of the last round."""
        group = self._groups.get(group_id)
        return None if group is None else group.totals

    def stands_still_since_ms(self, group_id: str, now_ms: int) -> int | None:
        """Since when it has committed nothing although it lags; None if it goes on."""
        group = self._groups.get(group_id)
        if group is None or not group.totals.lag or now_ms - group.moved_at_ms < STILL_MS:
            return None
        return group.moved_at_ms

    def standing_still(self, now_ms: int) -> Mapping[str, tuple[int, int]]:
        """Those that do: their lag, and since when."""
        found: dict[str, tuple[int, int]] = {}
        for group_id, group in self._groups.items():
            since_ms = self.stands_still_since_ms(group_id, now_ms)
            if since_ms is not None:
                found[group_id] = (group.totals.lag or 0, since_ms)
        return found

    def lags(self, group_id: str, now_ms: int) -> tuple[list[int | None], list[float | None]]:
        """By the minute, the present one last, in records and in seconds; None where nothing was measured."""
        group = self._groups.get(group_id)
        points = () if group is None else group.points
        lags = {minute: lag for minute, lag, _ in points}
        ages = {minute: lag_s for minute, _, lag_s in points}
        minutes = range(now_ms // MINUTE_MS - POINTS + 1, now_ms // MINUTE_MS + 1)
        return [lags.get(minute) for minute in minutes], [ages.get(minute) for minute in minutes]


def totals(rows: Sequence[Row]) -> GroupTotals:
    """Of one group."""
    lags = [row[5] for row in rows if row[5] is not None]
    ages = [row[6] for row in rows if row[6] is not None]
    return GroupTotals(
        topics=len({row[1] for row in rows}),
        offsets=len(rows),
        lag=sum(lags) if lags else None,
        lag_s=max(ages) if ages else None,
        position=sum(row[3] for row in rows),
    )
