"""The new leader's id, epoch and address in answers of Produce and Fetch (KIP-951).

A client whose request went to a former leader can go on at once instead of asking for metadata.
"""

from __future__ import annotations

from kraft.protocol.schema import Message, int32, message, string


@message
class LeaderIdAndEpoch(Message):
    """The current leader of a partition; -1 where it is unknown."""

    leader_id: int = int32("0+", default=-1)
    leader_epoch: int = int32("0+", default=-1)


@message
class NodeEndpoint(Message):
    """Where a broker can be reached."""

    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("0+", nullable="0+", default=None)
