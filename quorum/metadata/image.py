"""The metadata image: everything the records up to one offset amount to, as immutable values.

An image is never changed: a delta makes a new one that shares all untouched sections, so the Raft
lane, the controller and the broker's caches can hold the same image without locks, and the controller
forks it for its speculative state for the price of the touched sections. `encode` is canonical: equal
images give equal bytes on every node (sorted, no dependence on insertion order), which is what the
metadata oracle compares and what snapshots hold. Every image satisfies the partition invariants of
`PartitionImage`. See KIP-631 and KIP-746.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter

from partitions.topic_partition import ZERO_TOPIC_ID
from quorum.errors import InvalidPartitionStateError, MalformedError, MalformedImageError
from quorum.metadata import wire
from quorum.metadata.records import (
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    FeatureRange,
    Listener,
    feature_range,
    listener,
)

IMAGE_VERSION = 2
"""Version 2 has offline replicas, version 1 features, voters' identities, ELRs and reassignments; older
versions are read without them."""

ConfigKey = tuple[str, str]
"""Resource type ("topic", "broker") and resource name."""


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One registered broker. `epoch` is the offset of its registration record.

    `features` are the levels it can work with; a feature it does not name it does not know.
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

    `elr` ⊆ `replicas`, disjoint from `isr`: the eligible leader replicas, which have everything below
    the high watermark although they are not in sync (KIP-966). `last_known_elr`: the last leader, which
    is remembered once nobody is in the ISR. `adding_replicas` and `removing_replicas` ⊆ `replicas`: what
    an unfinished reassignment is about (KIP-455). `offline_replicas` ⊆ `replicas`: those whose brokers
    cannot serve their logs; none of them is in `isr`, unless it is all that is left there, without a
    leader, where no ELR is kept to remember it. Equal tuples of one partition are one object.
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
class MetadataImage:
    """The cluster's metadata after the record at `offset` (-1 = none yet), written in Raft term `epoch`.

    `features` are the finalized levels by name; a feature that is missing is at level 0. `voters` are the
    directory ids that belong to the voters' node ids. The mappings are shared between images: nobody
    writes to them.
    """

    offset: int = -1
    epoch: int = 0
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    topics: Mapping[bytes, TopicImage] = field(default_factory=dict)
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    configs: Mapping[ConfigKey, Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    features: Mapping[str, int] = field(default_factory=dict)
    voters: Mapping[int, bytes] = field(default_factory=dict)

    def topic(self, name: str) -> TopicImage | None:
        """The topic of that name, or None."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partition(self, topic_id: bytes, partition: int) -> PartitionImage | None:
        """The partition, or None when the topic or the number is unknown."""
        topic = self.topics.get(topic_id)
        if topic is None or not 0 <= partition < len(topic.partitions):
            return None
        return topic.partitions[partition]

    def config(self, resource_type: str, resource_name: str) -> Mapping[str, str]:
        """The dynamic configs set on a resource (empty when none are)."""
        return self.configs.get((resource_type, resource_name), {})

    def at(self, offset: int, epoch: int) -> MetadataImage:
        """The same metadata after an entry that changed nothing: a no-op or a rejected proposal."""
        return replace(self, offset=offset, epoch=epoch)

    def encode(self) -> bytes:
        """The canonical bytes of this image."""
        return wire.pack(
            (
                IMAGE_VERSION,
                self.offset,
                self.epoch,
                self.next_producer_id,
                [_broker_row(self.brokers[broker_id]) for broker_id in sorted(self.brokers)],
                [_topic_row(self.topics[topic_id]) for topic_id in sorted(self.topics)],
                [(*key, sorted(self.configs[key].items())) for key in sorted(self.configs)],
                sorted(self.features.items()),
                sorted(self.voters.items()),
            )
        )

    @staticmethod
    def decode(data: bytes | bytearray | memoryview) -> MetadataImage:
        """The image that `encode` wrote. Raises MalformedImageError."""
        try:
            return _decode_image(data)
        except (MalformedError, InvalidPartitionStateError) as error:
            raise MalformedImageError(f"the metadata image cannot be read: {error}") from error


EMPTY = MetadataImage()
"""The image before the first record."""


def _broker_row(broker: BrokerImage) -> tuple[object, ...]:
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


def _topic_row(topic: TopicImage) -> tuple[object, ...]:
    return (topic.topic_id, topic.name, [_partition_row(partition) for partition in topic.partitions])


_partition_row = attrgetter(
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
)

_offset_or_none = wire.integer(-1, wire.INT64_MAX)
_recovery_state = wire.integer(RECOVERED, RECOVERING)
_short_text = wire.text(255)
_rows = wire.tuple_of(lambda row: row)
_listeners = wire.tuple_of(listener)
_log_dirs = wire.tuple_of(wire.uuid)
_rack = wire.optional(_short_text)
_features = wire.tuple_of(feature_range)
_broker_ids = wire.distinct_broker_ids
_feature_levels = wire.tuple_of(wire.fixed_tuple((_short_text, wire.integer(1, wire.INT16_MAX))))
_voter_identities = wire.tuple_of(wire.fixed_tuple((wire.broker_id, wire.uuid)))


def _decode_image(data: bytes | bytearray | memoryview) -> MetadataImage:
    value = wire.unpack(data)
    if type(value) is not tuple or not value or value[0] not in range(IMAGE_VERSION + 1):
        raise MalformedError(
            f"this node reads image versions 0 to {IMAGE_VERSION}; the bytes are of another one"
        )
    if value[0] == 0:
        value = _of_version_0(value)
    if value[0] == 1:
        value = _of_version_1(value)
    _, offset, epoch, next_producer_id, broker_rows, topic_rows, config_rows, levels, identities = wire.array(
        value, 9, "an image"
    )
    brokers = [_broker_of(row) for row in _rows(broker_rows)]
    topics = [_topic_of(row) for row in _rows(topic_rows)]
    configs = [_config_of(row) for row in _rows(config_rows)]
    features, voters = _feature_levels(levels), _voter_identities(identities)
    image = MetadataImage(
        offset=_offset_or_none(offset),
        epoch=wire.offset64(epoch),
        brokers={broker.broker_id: broker for broker in brokers},
        topics={topic.topic_id: topic for topic in topics},
        topic_ids={topic.name: topic.topic_id for topic in topics},
        configs=dict(configs),
        next_producer_id=wire.offset64(next_producer_id),
        features=dict(features),
        voters=dict(voters),
    )
    for section, rows in (
        (image.brokers, brokers),
        (image.topics, topics),
        (image.topic_ids, topics),
        (image.configs, configs),
        (image.features, features),
        (image.voters, voters),
    ):
        if len(section) != len(rows):
            raise MalformedError("a broker, topic, config resource, feature or voter is listed twice")
    return image


def _of_version_0(value: tuple[object, ...]) -> tuple[object, ...]:
    """The rows of an image of version 0 as version 1 has them."""
    _, *head, broker_rows, topic_rows, config_rows = wire.array(value, 7, "an image of version 0")
    brokers = [(*wire.array(row, 8, "a broker"), ()) for row in _rows(broker_rows)]
    return (1, *head, brokers, _with_longer_partitions(topic_rows, 6, 10), config_rows, (), ())


def _of_version_1(value: tuple[object, ...]) -> tuple[object, ...]:
    """The rows of an image of version 1 as version 2 has them."""
    _, *head, topic_rows, config_rows, levels, identities = wire.array(value, 9, "an image of version 1")
    return (2, *head, _with_longer_partitions(topic_rows, 10, 11), config_rows, levels, identities)


def _with_longer_partitions(topic_rows: object, length: int, grown: int) -> list[tuple[object, ...]]:
    """Topic rows whose partition rows, of `length`, are made longer with empty lists."""
    missing = ((),) * (grown - length)
    topics: list[tuple[object, ...]] = []
    for row in _rows(topic_rows):
        topic_id, name, partitions = wire.array(row, 3, "a topic")
        rows = [(*wire.array(partition, length, "a partition"), *missing) for partition in _rows(partitions)]
        topics.append((topic_id, name, rows))
    return topics


def _broker_of(row: object) -> BrokerImage:
    broker_id, epoch, incarnation_id, listeners, rack, log_dirs, fenced, shutdown, features = wire.array(
        row, 9, "a broker"
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
        features=_features(features),
    )


def _topic_of(row: object) -> TopicImage:
    topic_id, name, partition_rows = wire.array(row, 3, "a topic")
    if wire.uuid(topic_id) == ZERO_TOPIC_ID:
        raise MalformedError("a topic id may not be zero")
    return TopicImage(
        topic_id=wire.uuid(topic_id),
        name=wire.text(249)(name),
        partitions=tuple([_partition_of(partition) for partition in _rows(partition_rows)]),
    )


def _partition_of(row: object) -> PartitionImage:
    replicas, isr, leader, leader_epoch, partition_epoch, recovery, *lists = wire.array(
        row, 11, "a partition"
    )
    removing, adding, elr, last_known_elr, offline = map(_broker_ids, lists)
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
    )
    partition.check()
    return partition


def _config_of(row: object) -> tuple[ConfigKey, dict[str, str]]:
    resource_type, resource_name, pairs = wire.array(row, 3, "a config resource")
    values = {}
    for pair in _rows(pairs):
        key, value = wire.array(pair, 2, "a config")
        values[_short_text(key)] = wire.text()(value)
    if not values:
        raise MalformedError("a config resource without configs is not listed")
    return (_short_text(resource_type), _short_text(resource_name)), values
