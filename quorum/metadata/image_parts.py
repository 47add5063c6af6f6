"""The parts of a metadata image (brokers, topics, partitions), as values and as rows of plain values.

Parts are immutable and shared between images. `image.py` packs and unpacks rows: the fields in a fixed order; rows of
older versions lack the last ones. Reading a row checks every value and the partition invariants of `PartitionImage`; a
violation is a MalformedError or an InvalidPartitionStateError.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Annotated, get_args

from partitions.topic_partition import ZERO_TOPIC_ID
from quorum.errors import InvalidPartitionStateError, MalformedError
from quorum.metadata import wire
from quorum.metadata.records import (
    NO_LEADER,
    NO_UNCLEAN_ELECTION,
    RECOVERED,
    BrokerEpoch,
    BrokerId,
    BrokerIds,
    Epoch,
    FeatureRange,
    Iterations,
    LeaderId,
    Listeners,
    QuotaEntity,
    RecoveryState,
    ScramMechanism,
    ShortText,
    Uuid,
    quota_entity,
)
from quorum.metadata.typed_fields import field_checks

PartitionId = tuple[bytes, int]
"""A topic's id and a partition's number."""
ConfigKey = tuple[str, str]
"""Resource type ("topic", "broker") and resource name."""
ScramKey = tuple[str, int]
"""A user's name, and the code of a SCRAM mechanism."""


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One registered broker. `epoch` is the offset of its registration record.

    `features` are the levels that it supports; it does not know a feature that it does not name.
    """

    broker_id: BrokerId
    epoch: BrokerEpoch
    incarnation_id: Uuid
    listeners: Listeners
    rack: ShortText | None
    log_dirs: tuple[Uuid, ...]
    fenced: bool
    in_controlled_shutdown: bool
    features: tuple[FeatureRange, ...] = ()

    @property
    def is_active(self) -> bool:
        """Whether it may lead partitions and be in an ISR (KIP-841): unfenced and not shutting down."""
        return not self.fenced and not self.in_controlled_shutdown


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition: `isr` ⊆ `replicas`, and `leader` in `isr`, or -1; an empty ISR has no leader.

    `elr` ⊆ `replicas`, disjoint from `isr`: the eligible leader replicas, which have everything below the high
    watermark although they are not in sync (KIP-966). `last_known_elr`: the last leader, remembered while the ISR is
    empty. `adding_replicas` and `removing_replicas` ⊆ `replicas`: the changes of an unfinished reassignment (KIP-455).
    `offline_replicas` ⊆ `replicas`: the replicas whose brokers cannot serve their logs. None of them is in `isr`,
    except for a last member without a leader, where no ELR is kept to remember it. Equal tuples of one partition are
    one object. `unclean_leader_epoch`: the leader epoch of the last unclean election. Records of earlier epochs that
    the log elected then lacks are lost; a replica that has them may come back much later.
    """

    replicas: BrokerIds
    isr: BrokerIds
    leader: LeaderId
    leader_epoch: Epoch
    partition_epoch: Epoch
    leader_recovery_state: RecoveryState = RECOVERED
    removing_replicas: BrokerIds = ()
    adding_replicas: BrokerIds = ()
    elr: BrokerIds = ()
    last_known_elr: BrokerIds = ()
    offline_replicas: BrokerIds = ()
    unclean_leader_epoch: Annotated[int, wire.integer(NO_UNCLEAN_ELECTION, wire.INT32_MAX)] = (
        NO_UNCLEAN_ELECTION
    )

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    def check(self) -> None:
        """Raises InvalidPartitionStateError unless the invariants hold."""
        replicas = self.replicas
        if not replicas or len(set(replicas)) != len(replicas):
            raise InvalidPartitionStateError(f"replicas {replicas} are empty or repeat a broker")
        if self.isr is not replicas:
            _check_within(replicas, "ISR", self.isr)
        if self.leader != NO_LEADER and self.leader not in self.isr:
            raise InvalidPartitionStateError(f"leader {self.leader} is not in the ISR {self.isr}")
        if self.elr:
            _check_within(replicas, "ELR", self.elr)
            if not set(self.elr).isdisjoint(self.isr):
                raise InvalidPartitionStateError(f"ELR {self.elr} and ISR {self.isr} share a broker")
        if self.is_reassigning:
            _check_within(replicas, "list of adding replicas", self.adding_replicas)
            _check_within(replicas, "list of removing replicas", self.removing_replicas)
        if self.offline_replicas:
            self._check_offline()

    def _check_offline(self) -> None:
        _check_within(self.replicas, "list of offline replicas", self.offline_replicas)
        waits_alone = len(self.isr) == 1 and not self.has_leader
        if not waits_alone and not set(self.offline_replicas).isdisjoint(self.isr):
            raise InvalidPartitionStateError(
                f"offline replicas {self.offline_replicas} and ISR {self.isr} share a broker"
            )


def _check_within(replicas: tuple[int, ...], what: str, members: tuple[int, ...]) -> None:
    for broker_id in members:
        if broker_id not in replicas:
            raise InvalidPartitionStateError(f"{what} {members} is not within the replicas {replicas}")
    if len(set(members)) != len(members):
        raise InvalidPartitionStateError(f"{what} {members} repeats a broker")


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic; the index in `partitions` is the partition number."""

    topic_id: bytes
    name: str
    partitions: tuple[PartitionImage, ...]


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What one user's password by one SCRAM mechanism is proved with (KIP-554)."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: Iterations


BROKER_FIELDS = (8, 9, 9, 9, 9)
"""How many of a broker's fields its row has, by image version."""
PARTITION_FIELDS = (6, 10, 11, 12, 12)
"""How many of a partition's fields its row has, by image version."""


broker_row = attrgetter(*field_checks(BrokerImage))
partition_row = attrgetter(*field_checks(PartitionImage))
scram_row = attrgetter(*field_checks(ScramCredential))
_BROKER_CHECKS = tuple(field_checks(BrokerImage).values())
_PARTITION_CHECKS = tuple(field_checks(PartitionImage).values())
_SCRAM_CHECKS = tuple(field_checks(ScramCredential).values())

_short_text = wire.text(255)
_topic_name = wire.text(249)
_config_value = wire.text()
_scram_mechanism = get_args(ScramMechanism)[1]
_rows = wire.tuple_of(lambda row: row)


def read_broker(row: object, version: int) -> BrokerImage:
    """A broker from its row in an image of that version."""
    values = wire.array(row, BROKER_FIELDS[version], "a broker")
    return BrokerImage(*(check(value) for check, value in zip(_BROKER_CHECKS, values, strict=False)))


def read_topic_id(value: object) -> bytes:
    """A topic's id, which is not zero."""
    topic_id: bytes = wire.uuid(value)
    if topic_id == ZERO_TOPIC_ID:
        raise MalformedError("a topic id may not be zero")
    return topic_id


def read_topic_name(value: object) -> str:
    """A topic's name, as long as a name may be."""
    name: str = _topic_name(value)
    return name


def read_partition(row: object, version: int) -> PartitionImage:
    """A partition from its row in an image of that version, its invariants checked."""
    raw = wire.array(row, PARTITION_FIELDS[version], "a partition")
    values = [check(value) for check, value in zip(_PARTITION_CHECKS, raw, strict=False)]
    replicas, isr = values[:2]
    if isr == replicas:
        values[1] = replicas
    partition = PartitionImage(*values)
    partition.check()
    return partition


def read_configs(row: object) -> tuple[ConfigKey, dict[str, str]]:
    """A resource and the configs set on it, at least one."""
    resource_type, resource_name, pairs = wire.array(row, 3, "a config resource")
    values: dict[str, str] = {}
    for pair in _rows(pairs):
        key, value = wire.array(pair, 2, "a config")
        values[_short_text(key)] = _config_value(value)
    if not values:
        raise MalformedError("a config resource without configs is not listed")
    return (_short_text(resource_type), _short_text(resource_name)), values


def read_scram(row: object) -> tuple[ScramKey, ScramCredential]:
    """A user's credential by one mechanism."""
    name, mechanism, *values = wire.array(row, 2 + len(_SCRAM_CHECKS), "a SCRAM credential")
    credential = ScramCredential(*(check(value) for check, value in zip(_SCRAM_CHECKS, values, strict=True)))
    return (_short_text(name), _scram_mechanism(mechanism)), credential


_quota_values = wire.tuple_of(wire.fixed_tuple((_short_text, wire.number)))


def read_client_quotas(row: object) -> tuple[QuotaEntity, dict[str, float]]:
    """An entity and its quotas, at least one."""
    entity, pairs = wire.array(row, 2, "an entity with quotas")
    values = dict(_quota_values(pairs))
    if not values:
        raise MalformedError("an entity without quotas is not listed")
    return quota_entity(entity), values
