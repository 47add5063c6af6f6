"""What --json prints and tables show: documents, and ids as people see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

Document = dict[str, Any]
"""An object of JSON."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_text(time_ms: int) -> str:
    """A time in ms since 1970 as people read it, in UTC; nothing for -1, which stands for none. One that no calendar
    has stays a number."""
    if time_ms < 0:
        return ""
    try:
        moment = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return str(time_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03}Z"


def age_text(age_ms: int) -> str:
    """A duration as people read it, in one word and its two largest units: 40ms, 3.4s, 5m20s, 2h05m, 3d04h."""
    seconds, ms = divmod(max(0, age_ms), 1000)
    if not seconds:
        return f"{ms}ms"
    if seconds < 60:
        return f"{seconds}.{ms // 100}s"
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02}h"
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{seconds:02}s"


def log_ends_text(ends: Mapping[str, int]) -> str:
    """The log ends of replicas, by broker."""
    return ",".join(f"{broker}:{offset}" for broker, offset in ends.items())


def lag_text(replicas: Iterable[int], ends: Mapping[str, int], leader: int | None) -> str:
    """By how many offsets replicas' logs end before the leader's or, where its end is not known, before the longest:
    ID:OFFSETS of those that lag, ID:? of those whose end is not known; 0 where there are none."""
    furthest = ends.get(str(leader), max(ends.values(), default=0))
    lagging = []
    for replica in replicas:
        end = ends.get(str(replica))
        if end is None or end < furthest:
            lagging.append(f"{replica}:{'?' if end is None else furthest - end}")
    return ",".join(lagging) or "0"
