"""`kafka.client.rack`: which replica a partition is read from, as its leader says (KIP-392): pure.

A reader that names its rack asks the leader, who may name a replica nearby; that one is read from until the leader is
to be asked again, or until it fails. What a replica cannot serve the leader serves: a follower may lag, and only the
leader knows what is gone. After a broker could not be reached, leaders are asked without the rack for a while, so that
they do not send the reader there again and again. `client.py` asks before each fetch. Times are seconds of one clock.
"""

from __future__ import annotations

from partitions.topic_partition import TopicPartition

AVOIDED_S = 10.0
"""About as long as the cluster takes to notice that a broker is gone."""


class NearReplicas:
    """What one client knows; `max_age_s` is Kafka's metadata.max.age.ms."""

    def __init__(self, rack: str, max_age_s: float) -> None:
        self.rack = rack
        self._max_age_s = max_age_s
        self._named: dict[TopicPartition, tuple[int, float]] = {}
        """By partition the replica to read from, and until when."""
        self._avoided_until = float("-inf")

    def replica_of(self, partition: TopicPartition, now: float) -> int | None:
        """The broker to read from instead of the leader."""
        broker_id, until = self._named.get(partition, (None, now))
        if broker_id is not None and now >= until:
            del self._named[partition]
            return None
        return broker_id

    def rack_to_tell(self, now: float) -> str:
        """What a leader is told when it is asked."""
        return self.rack if now >= self._avoided_until else ""

    def named(self, partition: TopicPartition, broker_id: int, now: float) -> None:
        """The leader sends the reader to this broker."""
        self._named[partition] = broker_id, now + self._max_age_s

    def failed(self, partition: TopicPartition) -> None:
        """The replica could not serve the partition as it is: the leader is asked next."""
        self._named.pop(partition, None)

    def unreachable(self, broker_id: int, now: float) -> None:
        """Nothing is read from this broker any more until a leader names it again, and that not at once."""
        self._named = {where: name for where, name in self._named.items() if name[0] != broker_id}
        self._avoided_until = now + AVOIDED_S
