"""The counters of the white-box oracles: the events of replication and of the quorum in a run.

They are declared in one place, so that a counter that stays at zero is seen. The models of this package count through
`Verdicts.happened`.
"""

from __future__ import annotations

from typing import Final

LEADER_ELECTION: Final = "leader election"
UNCLEAN_ELECTION: Final = "unclean election"
NO_LEADER: Final = "partition without leader"
ISR_SHRINK: Final = "ISR shrink"
ISR_EXPAND: Final = "ISR expand"
TOPIC_CREATED: Final = "topic created"
TOPIC_DELETED: Final = "topic deleted"
BROKER_REGISTERED: Final = "broker registered"
BROKER_FENCED: Final = "broker fenced"
BROKER_UNFENCED: Final = "broker unfenced"
BROKER_SHUTDOWN: Final = "controlled shutdown begun"
NOBODY_IN_SYNC: Final = "nobody in the ISR"
ELR_ENTERED: Final = "eligible leader replica"
ELR_ELECTION: Final = "leader elected from the ELR"
LAST_KNOWN_LEADER: Final = "last known leader elected"
PROPOSAL_REFUSED: Final = "proposal refused at apply"

CONTROLLER_ELECTION: Final = "controller election"
METADATA_SNAPSHOT: Final = "metadata snapshot"
SNAPSHOT_INSTALL: Final = "snapshot install"
BROKER_SNAPSHOT: Final = "metadata snapshot to a broker"
VOTE: Final = "vote"

TRUNCATION: Final = "truncation"
LOG_RESET: Final = "log reset to the leader's start"
LOG_ROLL: Final = "log roll"
RETENTION: Final = "retention"
LOG_DELETED: Final = "log deleted"
FOLLOWER_RESTART: Final = "follower restart"
LOG_RECOVERED: Final = "torn log tail cut"
DUPLICATE_BATCH: Final = "duplicate batch"
RAISED_BY_FETCH: Final = "high watermark raised by follower fetch"
RAISED_BY_ISR: Final = "high watermark raised by ISR change"
RAISED_ALONE: Final = "high watermark raised by the leader alone"
HIGH_WATERMARK_CUT: Final = "high watermark cut back with a log"
READ_AT_FOLLOWER: Final = "consumer's read answered by a follower"
SESSION_OPENED: Final = "fetch session opened"
SESSION_REFUSED: Final = "fetch session refused for want of a slot"
SESSION_EVICTED: Final = "fetch session evicted"
SESSION_ERROR: Final = "fetch session error"
INCREMENTAL_FETCH: Final = "incremental fetch"
THROTTLED_BY_LEADER: Final = "fetch held back by a throttled leader"
THROTTLED_BY_FOLLOWER: Final = "fetch held back by a throttled follower"
COMPACTED: Final = "record compacted away"
TOMBSTONE_LAPSED: Final = "tombstone dropped after its time"
HOLE_FOLLOWED: Final = "batch that a follower never got, for it was compacted"
BATCH_DAMAGED: Final = "batch lost to injected damage"
ALL_LOST_POWER: Final = "flushed partition with acknowledged records whose replicas have all lost power"
DAMAGE_AT_START: Final = "damage found at start"
DAMAGE_AT_READ: Final = "damage found at read"
REPLICA_OFFLINE: Final = "replica offline"
REPLICA_REPAIRED: Final = "offline replica back in the ISR"
BATCH_BACK: Final = "damaged batch copied back"

COUNTERS: Final = tuple(
    sorted(
        value
        for name, value in globals().items()
        if name.isupper() and isinstance(value, str) and value not in (UNCLEAN_ELECTION, PROPOSAL_REFUSED)
    )
)
"""Every counter of this package that the default swarm raises, in order. An unclean election needs a topic
that allows it, a refused proposal a queue so full that the one before it was dropped."""
