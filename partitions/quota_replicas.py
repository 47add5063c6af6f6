"""Which replicas of a topic are throttled: the value of `leader.` / `follower.replication.throttled.replicas`.

Guarantees: what `parse_throttled_replicas` accepts is `*` (all replicas), nothing (none), or
`partition:broker` pairs, as in Kafka; anything else is a ValueError that says what would do. Used by the table
of topic configs to check values and by `kraft.broker.replicas.replication_throttles` to look replicas up. Pure.
"""

from __future__ import annotations

from typing import Final, NamedTuple

ALL_REPLICAS: Final = "*"


class ThrottledReplicas(NamedTuple):
    """The throttled replicas of one topic."""

    all: bool = False
    pairs: frozenset[tuple[int, int]] = frozenset()
    """(partition, broker id)"""

    def covers(self, partition: int, broker_id: int) -> bool:
        """Whether the replica of a partition on a broker is throttled."""
        return self.all or (partition, broker_id) in self.pairs


NOTHING_THROTTLED: Final = ThrottledReplicas()


def parse_throttled_replicas(text: str) -> ThrottledReplicas:
    """The replicas that a config value names. Raises ValueError."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if parts == [ALL_REPLICAS]:
        return ThrottledReplicas(all=True)
    return ThrottledReplicas(pairs=frozenset(_pair(part) for part in parts))


def _pair(part: str) -> tuple[int, int]:
    partition, separator, broker = part.partition(":")
    if not (separator and _is_number(partition) and _is_number(broker)):
        raise ValueError(f"{part!r} is not a replica; use * or partition:broker, comma-separated")
    return int(partition), int(broker)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def throttled_replicas(text: str) -> str:
    """The value of a topic's config, in its plainest form. Raises ValueError."""
    if parse_throttled_replicas(text).all:
        return ALL_REPLICAS
    return ",".join(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
