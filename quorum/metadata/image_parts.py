"""The parts of a metadata image (brokers, topics, partitions), as values and as rows of plain values.

Parts are immutable and shared between images. `image.py` packs and unpacks rows: the fields in a fixed order; rows of
older versions lack the last ones. Reading a row checks every value and the partition invariants of `PartitionImage`; a
violation is a MalformedError or an InvalidPartitionStateError.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

from partitions.topic_partition import ZERO_TOPIC_ID
from quorum.errors import InvalidPartitionStateError, MalformedError
from quorum.metadata import wire
from quorum.metadata.records import (
    NO_LEADER,
    NO_UNCLEAN_ELECTION,
    RECOVERED,
    RECOVERING,
    FeatureRange,
    Listener,
    feature_range,
    listener,
)

PartitionId = tuple[bytes, int]
"""A topic's id and a partition's number."""
ConfigKey = tuple[str, str]
"""Resource type ("topic", "broker") and resource name."""


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One registered broker. `epoch` is the offset of its registration record.

    `features` are the levels that it supports; it does not know a feature that it does not name.
    """

    broker_id: int
    epoch: int
    incarnation_id: bytes
    listeners: tuple[Listener, ...]
    rack: str | None
    log_dirs: tuple[bytes, ...]
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

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int = RECOVERED
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    unclean_leader_epoch: int = NO_UNCLEAN_ELECTION

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


BROKER_FIELDS = (8, 9, 9, 9)
"""Of a broker's row, by image version."""
PARTITION_FIELDS = (6, 10, 11, 12)
"""Of a partition's row, by image version."""


def broker_row(broker: BrokerImage) -> tuple[object, ...]:
    return (
        broker.broker_id,
        broker.epoch,
        broker.incarnation_id,
        broker.listeners,
        broker.rack,
        broker.log_dirs,
        broker.fenced,
        broker.in_controlled_shutdown,
        broker.features,
    )


partition_row = attrgetter(
    "replicas",
    "isr",
    "leader",
    "leader_epoch",
    "partition_epoch",
    "leader_recovery_state",
    "removing_replicas",
    "adding_replicas",
    "elr",
    "last_known_elr",
    "offline_replicas",
    "unclean_leader_epoch",
)

_recovery_state = wire.integer(RECOVERED, RECOVERING)
_unclean_leader_epoch = wire.integer(NO_UNCLEAN_ELECTION, wire.INT32_MAX)
_NO_LISTS: tuple[tuple[int, ...], ...] = ((), (), (), (), ())
"""Stands for the partition lists that a row of an older version lacks."""
_short_text = wire.text(255)
_topic_name = wire.text(249)
_config_value = wire.text()
_rows = wire.tuple_of(lambda row: row)
_listeners = wire.tuple_of(listener)
_log_dirs = wire.tuple_of(wire.uuid)
_rack = wire.optional(_short_text)
_features = wire.tuple_of(feature_range)
_broker_ids = wire.distinct_broker_ids


def read_broker(row: object, version: int) -> BrokerImage:
    """A broker from its row in an image of that version."""
    broker_id, epoch, incarnation_id, listeners, rack, log_dirs, fenced, shutdown, *features = wire.array(
        row, BROKER_FIELDS[version], "a broker"
    )
    return BrokerImage(
        broker_id=wire.broker_id(broker_id),
        epoch=wire.offset64(epoch),
        incarnation_id=wire.uuid(incarnation_id),
        listeners=_listeners(listeners),
        rack=_rack(rack),
        log_dirs=_log_dirs(log_dirs),
        fenced=wire.boolean(fenced),
        in_controlled_shutdown=wire.boolean(shutdown),
        features=_features(features[0]) if features else (),
    )


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
    replicas, isr, leader, leader_epoch, partition_epoch, recovery, *later = wire.array(
        row, PARTITION_FIELDS[version], "a partition"
    )
    lists = (*later, *_NO_LISTS[len(later) :])[: len(_NO_LISTS)]
    removing, adding, elr, last_known_elr, offline = map(_broker_ids, lists)
    unclean_leader_epoch = later[len(_NO_LISTS)] if len(later) > len(_NO_LISTS) else NO_UNCLEAN_ELECTION
    replicas = _broker_ids(replicas)
    partition = PartitionImage(
        replicas=replicas,
        isr=replicas if isr == replicas else _broker_ids(isr),
        leader=wire.leader_id(leader),
        leader_epoch=wire.epoch32(leader_epoch),
        partition_epoch=wire.epoch32(partition_epoch),
        leader_recovery_state=_recovery_state(recovery),
        removing_replicas=removing,
        adding_replicas=adding,
        elr=elr,
        last_known_elr=last_known_elr,
        offline_replicas=offline,
        unclean_leader_epoch=_unclean_leader_epoch(unclean_leader_epoch),
    )
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
