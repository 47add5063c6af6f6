"""The metadata image: the result of all records up to one offset, as immutable values.

An image is never changed: a delta makes a new one that shares all untouched sections. So the Raft lane, the controller
and the broker's caches hold the same image without locks, and the controller forks its speculative image for the price
of the touched sections. `encode` is canonical (sorted, independent of insertion order): equal images give equal bytes
on every node. The metadata oracle compares these bytes, and snapshots hold them. A large image takes a while to encode
or decode, so both exist in bounded steps: neither brokers' heartbeats nor Raft's wait for 200,000 partitions. Every
image satisfies the partition invariants of `PartitionImage`. See KIP-631 and KIP-746.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import islice, repeat
from typing import TypeVar

import msgpack

from quorum.errors import InvalidPartitionStateError, MalformedError, MalformedImageError
from quorum.metadata import wire
from quorum.metadata.acls import Acl, acl
from quorum.metadata.image_parts import (
    BrokerImage,
    ConfigKey,
    PartitionId,
    PartitionImage,
    ScramCredential,
    ScramKey,
    TopicImage,
    broker_row,
    partition_row,
    read_broker,
    read_client_quotas,
    read_configs,
    read_partition,
    read_scram,
    read_topic_id,
    read_topic_name,
    scram_row,
)
from quorum.metadata.records import QuotaEntity
from quorum.steps import ROWS_PER_STEP, Steps, finished

__all__ = [
    "EMPTY",
    "BrokerImage",
    "ConfigKey",
    "MetadataImage",
    "PartitionId",
    "PartitionImage",
    "ScramCredential",
    "ScramKey",
    "TopicImage",
]

SortKey = TypeVar("SortKey", bytes, ConfigKey, ScramKey, Acl, QuotaEntity)
K = TypeVar("K")
V = TypeVar("V")

IMAGE_VERSION = 4
"""Version 4 has credentials, ACLs and quotas, version 3 the epochs of unclean elections, version 2 offline replicas,
version 1 features, voters' identities, ELRs and reassignments; older versions are read without them."""


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The cluster's metadata after the record at `offset` (-1 = none yet), written in Raft term `epoch`.

    `features` are the finalized levels by name; a missing feature is at level 0. `voters` are the voters' directory
    ids by node id, `client_quotas` the values of each entity by key. Images share the mappings, which are never
    written to.
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
    scram_credentials: Mapping[ScramKey, ScramCredential] = field(default_factory=dict)
    acls: AbstractSet[Acl] = frozenset()
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)

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
        return finished(self.encode_steps())

    def encode_steps(self, rows_per_step: int = ROWS_PER_STEP) -> Steps[bytes]:
        """The canonical bytes, in steps of so many rows: a broker, topic, partition, config resource or entity each."""
        packer = msgpack.Packer(use_bin_type=True, autoreset=False)
        pieces: list[bytes] = []
        for number, _ in enumerate(self._pack_rows(packer), 1):
            if number % rows_per_step == 0:
                pieces.append(packer.bytes())
                packer.reset()
                yield
        pieces.append(packer.bytes())
        return b"".join(pieces)

    def _pack_rows(self, packer: msgpack.Packer) -> Iterator[None]:
        """Packs the image; one row between two yields."""
        packer.pack_array_header(_SECTIONS[-1])
        for value in (IMAGE_VERSION, self.offset, self.epoch, self.next_producer_id):
            packer.pack(value)
        packer.pack_array_header(len(self.brokers))
        for broker_id in sorted(self.brokers):
            packer.pack(broker_row(self.brokers[broker_id]))
            yield
        packer.pack_array_header(len(self.topics))
        for topic_id in (yield from _in_order(self.topics)):
            topic = self.topics[topic_id]
            packer.pack_array_header(3)
            packer.pack(topic.topic_id)
            packer.pack(topic.name)
            packer.pack_array_header(len(topic.partitions))
            yield
            for partition in topic.partitions:
                packer.pack(partition_row(partition))
                yield
        packer.pack_array_header(len(self.configs))
        for key in (yield from _in_order(self.configs)):
            packer.pack((*key, sorted(self.configs[key].items())))
            yield
        packer.pack(sorted(self.features.items()))
        packer.pack(sorted(self.voters.items()))
        packer.pack_array_header(len(self.scram_credentials))
        for user in (yield from _in_order(self.scram_credentials)):
            packer.pack((*user, *scram_row(self.scram_credentials[user])))
            yield
        packer.pack_array_header(len(self.acls))
        for entry in (yield from _in_order(self.acls)):
            packer.pack(entry)
            yield
        packer.pack_array_header(len(self.client_quotas))
        for entity in (yield from _in_order(self.client_quotas)):
            packer.pack((entity, sorted(self.client_quotas[entity].items())))
            yield

    @staticmethod
    def decode(data: bytes | bytearray | memoryview) -> MetadataImage:
        """The image that `encode` wrote. Raises MalformedImageError."""
        return finished(MetadataImage.decode_steps(data))

    @staticmethod
    def decode_steps(
        data: bytes | bytearray | memoryview, rows_per_step: int = ROWS_PER_STEP
    ) -> Steps[MetadataImage]:
        """The image that `encode` wrote, in steps of so many rows. Raises MalformedImageError."""
        decoder = _Decoder(data)
        try:
            for number, _ in enumerate(decoder.read_rows(), 1):
                if number % rows_per_step == 0:
                    yield
            return decoder.image()
        except (MalformedError, InvalidPartitionStateError) as error:
            raise MalformedImageError(f"the metadata image cannot be read: {error}") from error


EMPTY = MetadataImage()
"""The image before the first record."""


def _in_order(keys: Iterable[SortKey]) -> Generator[None, None, Iterator[SortKey]]:
    """The keys, sorted without one long step: it yields once for each of them."""
    left, runs = iter(keys), []
    while run := sorted(islice(left, _RUN_KEYS)):
        runs.append(run)
        yield from repeat(None, len(run))
    return merge(*runs)


_RUN_KEYS = 1000
_SECTIONS = (7, 9, 9, 9, 12)
"""How many values an image has, by version."""
_FIRST_WITH_USERS_AND_ACLS = 4

_offset_or_none = wire.integer(-1, wire.INT64_MAX)
_feature_levels = wire.tuple_of(wire.fixed_tuple((wire.text(255), wire.integer(1, wire.INT16_MAX))))
_voter_identities = wire.tuple_of(wire.fixed_tuple((wire.broker_id, wire.uuid)))


class _Decoder:
    """Reads an image row by row."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._reader = wire.Reader(data)
        self._head: tuple[int, int, int] = (-1, 0, 0)
        self._brokers: dict[int, BrokerImage] = {}
        self._topics: dict[bytes, TopicImage] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._configs: dict[ConfigKey, Mapping[str, str]] = {}
        self._features: dict[str, int] = {}
        self._voters: dict[int, bytes] = {}
        self._scram_credentials: dict[ScramKey, ScramCredential] = {}
        self._acls: set[Acl] = set()
        self._client_quotas: dict[QuotaEntity, Mapping[str, float]] = {}

    def read_rows(self) -> Iterator[None]:
        """Reads everything; one row between two yields. Raises MalformedError, InvalidPartitionStateError."""
        reader = self._reader
        sections = reader.array_header("an image")
        version = reader.value() if sections else None
        if type(version) is not int or not 0 <= version <= IMAGE_VERSION:
            raise MalformedError(
                f"this node reads image versions 0 to {IMAGE_VERSION}; the bytes are of another one"
            )
        if sections != _SECTIONS[version]:
            raise MalformedError(
                f"an image of version {version} is an array of {_SECTIONS[version]} elements, not of {sections}"
            )
        offset, epoch = _offset_or_none(reader.value()), wire.offset64(reader.value())
        self._head = (offset, epoch, wire.offset64(reader.value()))
        for _ in range(reader.array_header("the list of brokers")):
            broker = read_broker(reader.value(), version)
            _add(self._brokers, broker.broker_id, broker)
            yield
        yield from self._read_topics(version)
        for _ in range(reader.array_header("the list of config resources")):
            _add(self._configs, *read_configs(reader.value()))
            yield
        if version > 0:
            for name, level in _feature_levels(reader.value()):
                _add(self._features, name, level)
            for voter, directory_id in _voter_identities(reader.value()):
                _add(self._voters, voter, directory_id)
        if version >= _FIRST_WITH_USERS_AND_ACLS:
            for _ in range(reader.array_header("the list of SCRAM credentials")):
                _add(self._scram_credentials, *read_scram(reader.value()))
                yield
            for number in range(1, reader.array_header("the list of ACLs") + 1):
                self._acls.add(acl(reader.value()))
                if len(self._acls) < number:
                    raise MalformedError("an ACL is listed twice")
                yield
            for _ in range(reader.array_header("the list of client quotas")):
                _add(self._client_quotas, *read_client_quotas(reader.value()))
                yield
        reader.end()

    def _read_topics(self, version: int) -> Iterator[None]:
        reader = self._reader
        for _ in range(reader.array_header("the list of topics")):
            reader.array_of(3, "a topic")
            topic_id, name = read_topic_id(reader.value()), read_topic_name(reader.value())
            partitions = []
            for _ in range(reader.array_header("a topic's list of partitions")):
                partitions.append(read_partition(reader.value(), version))
                yield
            _add(self._topics, topic_id, TopicImage(topic_id, name, tuple(partitions)))
            _add(self._topic_ids, name, topic_id)
            yield

    def image(self) -> MetadataImage:
        """The image, once everything has been read."""
        offset, epoch, next_producer_id = self._head
        return MetadataImage(
            offset=offset,
            epoch=epoch,
            brokers=self._brokers,
            topics=self._topics,
            topic_ids=self._topic_ids,
            configs=self._configs,
            next_producer_id=next_producer_id,
            features=self._features,
            voters=self._voters,
            scram_credentials=self._scram_credentials,
            acls=self._acls,
            client_quotas=self._client_quotas,
        )


def _add(section: dict[K, V], key: K, value: V) -> None:
    if key in section:
        raise MalformedError(
            "a broker, topic, config resource, feature, voter, user or quota is listed twice"
        )
    section[key] = value
