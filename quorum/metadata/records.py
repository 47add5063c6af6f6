"""The metadata records, which the controller decides, Raft orders and every node replays.

A record is a frozen dataclass whose fields name their checks; `quorum.metadata.record_codec` turns records into bytes
and back. Records hold no offsets: a record gets the offset of its Raft entry when it is applied, and a broker's epoch
is the offset of its registration. Used by the image and delta, by the proposals, and to dump or ship the metadata log
(KIP-631, KIP-746).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, NamedTuple

from quorum.errors import MalformedError
from quorum.metadata import wire
from quorum.metadata.acls import Acl, acl

TOPIC_RESOURCE = "topic"
BROKER_RESOURCE = "broker"
GROUP_RESOURCE = "group"
NO_LEADER = wire.NO_LEADER

RECOVERED = 0
RECOVERING = 1
"""Leader recovery state (KIP-704): RECOVERING after an unclean election until the ISR is confirmed."""

NO_UNCLEAN_ELECTION = -1
"""Stands for the epoch of the last unclean election in a partition without one."""

NO_BROKER_EPOCH = -1

SCRAM_SHA_256 = 1
SCRAM_SHA_512 = 2
"""Kafka's codes of the SCRAM mechanisms (KIP-554)."""
SCRAM_MECHANISM_NAMES: Mapping[int, str] = MappingProxyType(
    {SCRAM_SHA_256: "SCRAM-SHA-256", SCRAM_SHA_512: "SCRAM-SHA-512"}
)
SCRAM_KEY_BYTES: Mapping[int, int] = MappingProxyType({SCRAM_SHA_256: 32, SCRAM_SHA_512: 64})
"""Size of a stored key and of a server key."""


class Listener(NamedTuple):
    """One address of a broker, as clients get it."""

    name: str
    host: str
    port: int
    security_protocol: str


def listener(value: object) -> Listener:
    """A check for one encoded listener."""
    name, host, port, security_protocol = wire.array(value, 4, "a listener")
    short = wire.text(255)
    return Listener(short(name), short(host), wire.integer(0, 65535)(port), short(security_protocol))


def quota_entity(value: object) -> tuple[tuple[str, str], ...]:
    """A check for the encoded entity of a quota."""
    short = wire.text(255)
    entity: tuple[tuple[str, str], ...] = wire.tuple_of(wire.fixed_tuple((short, short)))(value)
    types = [kind for kind, _ in entity]
    if not types or types != sorted(set(types)):
        raise MalformedError(f"an entity has parts of ascending types, not {wire.describe(value)}")
    return entity


def feature_range(value: object) -> tuple[str, int, int]:
    """A check for one encoded range of feature levels."""
    name, lowest, highest = wire.array(value, 3, "a feature")
    lowest, highest = wire.feature_level(lowest), wire.feature_level(highest)
    if lowest > highest:
        raise MalformedError(f"the lowest level {lowest} of a feature is above its highest, {highest}")
    return wire.text(255)(name), lowest, highest


# The types of fields, each with its check; where None is allowed, it passes.
BrokerId = Annotated[int, wire.broker_id]
BrokerEpoch = Annotated[int, wire.offset64]
ProducerId = Annotated[int, wire.offset64]
BrokerIds = Annotated[tuple[int, ...], wire.distinct_broker_ids]
LeaderId = Annotated[int, wire.leader_id]
PartitionNumber = Annotated[int, wire.partition_number]
Epoch = Annotated[int, wire.epoch32]
Uuid = Annotated[bytes, wire.uuid]
RecoveryState = Annotated[int, wire.integer(RECOVERED, RECOVERING)]
ShortText = Annotated[str, wire.text(255)]
Listeners = Annotated[tuple[Listener, ...], wire.tuple_of(listener)]
FeatureLevelNumber = Annotated[int, wire.feature_level]
ScramMechanism = Annotated[int, wire.integer(SCRAM_SHA_256, SCRAM_SHA_512)]
Iterations = Annotated[int, wire.integer(1, wire.INT32_MAX)]
QuotaEntity = Annotated[tuple[tuple[str, str], ...], quota_entity]
"""Of whom a quota is: (type, name) of each part, by ascending type."""
FeatureRange = Annotated[tuple[str, int, int], feature_range]
"""A feature's name, and the lowest and highest level that a node supports (KIP-584)."""


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """A broker's incarnation registers; its broker epoch is the offset of this record.

    `previous_broker_epoch` is the epoch under which the broker last stopped cleanly. It is -1 after an unclean stop:
    the logs may then lack records that the broker had when it was last heard of (KIP-966).
    """

    broker_id: BrokerId
    incarnation_id: Uuid
    listeners: Listeners
    rack: ShortText | None
    log_dirs: tuple[Uuid, ...]
    fenced: bool = True
    previous_broker_epoch: Annotated[int, wire.integer(NO_BROKER_EPOCH, wire.INT64_MAX)] = NO_BROKER_EPOCH
    in_controlled_shutdown: bool = False
    features: tuple[FeatureRange, ...] = ()


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    """A broker leaves the cluster for good."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class BrokerChange:
    """A broker is fenced, unfenced or enters controlled shutdown; None leaves a flag as it is."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic is created; its configs and partitions follow in the same proposal."""

    name: Annotated[str, wire.text(249)]
    topic_id: Uuid


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition is created: number = how many the topic had before.

    `elr` and `last_known_elr` are the eligible leader replicas and those last known to be (KIP-966);
    `adding_replicas` and `removing_replicas` are the changes of a reassignment (KIP-455);
    `offline_replicas` are the replicas whose brokers cannot serve their logs.
    """

    topic_id: Uuid
    partition: PartitionNumber
    replicas: BrokerIds
    isr: BrokerIds
    leader: LeaderId
    leader_epoch: Epoch = 0
    partition_epoch: Epoch = 0
    leader_recovery_state: RecoveryState = RECOVERED
    removing_replicas: BrokerIds = ()
    adding_replicas: BrokerIds = ()
    elr: BrokerIds = ()
    last_known_elr: BrokerIds = ()
    offline_replicas: BrokerIds = ()


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """A partition's replicas, ISR, ELR, leader or offline replicas change; None leaves a field as it is.

    Every change adds 1 to the partition epoch; a given `leader` (-1 = none) adds 1 to the leader epoch. An
    unclean election gives its leader epoch as `unclean_leader_epoch`.
    """

    topic_id: Uuid
    partition: PartitionNumber
    isr: BrokerIds | None = None
    leader: LeaderId | None = None
    leader_recovery_state: RecoveryState | None = None
    replicas: BrokerIds | None = None
    removing_replicas: BrokerIds | None = None
    adding_replicas: BrokerIds | None = None
    elr: BrokerIds | None = None
    last_known_elr: BrokerIds | None = None
    offline_replicas: BrokerIds | None = None
    unclean_leader_epoch: Epoch | None = None


@dataclass(frozen=True, slots=True)
class RemoveTopic:
    """A topic, its partitions and its configs are removed."""

    topic_id: Uuid


@dataclass(frozen=True, slots=True)
class Config:
    """A dynamic config is set, or (value None) back to its default."""

    resource_type: ShortText
    resource_name: ShortText
    key: ShortText
    value: str | None


@dataclass(frozen=True, slots=True)
class ProducerIds:
    """Producer ids below `next_producer_id` are handed out; the broker owns the newest block."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    next_producer_id: ProducerId


@dataclass(frozen=True, slots=True)
class FeatureLevel:
    """A feature works at this level from now on, in the whole cluster; level 0 removes it (KIP-584)."""

    name: ShortText
    level: FeatureLevelNumber


@dataclass(frozen=True, slots=True)
class VoterIdentity:
    """The metadata folder of the voter has this directory id (KIP-853)."""

    node_id: BrokerId
    directory_id: Uuid


@dataclass(frozen=True, slots=True)
class UserScramCredential:
    """What a user's password by one SCRAM mechanism is proved with; it takes the place of an earlier one (KIP-554,
    KIP-900). Whoever has `server_key` and `stored_key` can play the server, and try passwords at leisure."""

    name: ShortText
    mechanism: ScramMechanism
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: Iterations


@dataclass(frozen=True, slots=True)
class RemoveUserScramCredential:
    """A user cannot authenticate by this mechanism any more."""

    name: ShortText
    mechanism: ScramMechanism


@dataclass(frozen=True, slots=True)
class AccessControlEntry:
    """An ACL is added."""

    acl: Annotated[Acl, acl]


@dataclass(frozen=True, slots=True)
class RemoveAccessControlEntry:
    """An ACL is removed."""

    acl: Annotated[Acl, acl]


@dataclass(frozen=True, slots=True)
class ClientQuota:
    """A quota of an entity is set, or (value None) removed (KIP-546).

    The entity is its parts, (type, name) by ascending type; an empty name stands for the default of the type.
    """

    entity: QuotaEntity
    key: ShortText
    value: float | None


@dataclass(frozen=True, slots=True)
class NoOp:
    """Changes nothing; lets the log make progress."""


Record = (
    RegisterBroker
    | UnregisterBroker
    | BrokerChange
    | Topic
    | Partition
    | PartitionChange
    | RemoveTopic
    | Config
    | ProducerIds
    | NoOp
    | FeatureLevel
    | VoterIdentity
    | UserScramCredential
    | RemoveUserScramCredential
    | AccessControlEntry
    | RemoveAccessControlEntry
    | ClientQuota
)
