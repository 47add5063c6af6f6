"""A delta: records applied to one image, which make the next image, and their changes.

Applying is pure and deterministic: the same image and records give the same next image on every node. A record that
does not fit raises a `RecordDoesNotFitError`; the delta must then be thrown away, and the base image is untouched. Only
touched sections are copied, each once, however many records there are. Used at apply time
(`quorum.controller.proposal`), by the controller for its speculative image, and by every node's metadata loader, which
reads the `changed_…` properties (KIP-746's MetadataDelta).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from partitions.topic_partition import ZERO_TOPIC_ID
from quorum.errors import (
    AclExistsError,
    InvalidProducerIdError,
    RecordDoesNotFitError,
    StaleBrokerEpochError,
    TopicExistsError,
    UnknownAclError,
    UnknownBrokerError,
    UnknownPartitionError,
    UnknownTopicError,
)
from quorum.metadata.acls import Acl
from quorum.metadata.image import (
    BrokerImage,
    ConfigKey,
    MetadataImage,
    PartitionId,
    PartitionImage,
    ScramCredential,
    ScramKey,
    TopicImage,
)
from quorum.metadata.records import (
    TOPIC_RESOURCE,
    AccessControlEntry,
    BrokerChange,
    ClientQuota,
    Config,
    FeatureLevel,
    NoOp,
    Partition,
    PartitionChange,
    ProducerIds,
    QuotaEntity,
    Record,
    RegisterBroker,
    RemoveAccessControlEntry,
    RemoveTopic,
    RemoveUserScramCredential,
    Topic,
    UnregisterBroker,
    UserScramCredential,
    VoterIdentity,
)

"""Topic id and partition number."""


class MetadataDelta:
    """Collects records on top of `image`; `finish` gives the next image."""

    def __init__(self, image: MetadataImage) -> None:
        self.base = image
        self._brokers: dict[int, BrokerImage] | None = None
        self._topics: dict[bytes, TopicImage] | None = None
        self._topic_ids: dict[str, bytes] | None = None
        self._configs: dict[ConfigKey, Mapping[str, str]] | None = None
        self._partitions: dict[bytes, list[PartitionImage]] = {}
        self._next_producer_id = image.next_producer_id
        self._features: dict[str, int] | None = None
        self._voters: dict[int, bytes] | None = None
        self._scram_credentials: dict[ScramKey, ScramCredential] | None = None
        self._acls: set[Acl] | None = None
        self._client_quotas: dict[QuotaEntity, Mapping[str, float]] | None = None
        self._finished = False
        self._changed_brokers: dict[int, None] = {}
        self._changed_topics: dict[bytes, None] = {}
        self._changed_partitions: dict[PartitionId, PartitionImage | None] = {}
        self._shown_partitions: dict[PartitionId, PartitionImage | None] | None = None
        self._changed_configs: dict[ConfigKey, None] = {}
        self._changed_features: dict[str, None] = {}
        self._changed_voters: dict[int, None] = {}
        self._changed_scram_credentials: dict[ScramKey, None] = {}
        self._changed_acls: dict[Acl, None] = {}
        self._changed_client_quotas: dict[QuotaEntity, None] = {}

    # What changed ---------------------------------------------------------------------------------

    @property
    def changed_brokers(self) -> tuple[int, ...]:
        """Ids of brokers registered, changed or removed, ascending."""
        return tuple(sorted(self._changed_brokers))

    @property
    def changed_topics(self) -> tuple[bytes, ...]:
        """Ids of topics that exist now and were created or have a created or changed partition, ascending."""
        topics = self._current_topics()
        return tuple(sorted(topic_id for topic_id in self._changed_topics if topic_id in topics))

    @property
    def created_topics(self) -> tuple[bytes, ...]:
        """Ids of topics that exist now and did not in the base image, ascending."""
        return tuple(topic_id for topic_id in self.changed_topics if topic_id not in self.base.topics)

    @property
    def deleted_topics(self) -> Mapping[bytes, TopicImage]:
        """Topics of the base image that are gone, with their state there, by ascending id."""
        topics = self._current_topics()
        return {
            topic_id: self.base.topics[topic_id]
            for topic_id in sorted(self._changed_topics)
            if topic_id in self.base.topics and topic_id not in topics
        }

    @property
    def changed_partitions(self) -> Mapping[PartitionId, PartitionImage | None]:
        """Partitions that exist now and were created or changed, ascending, each with its base state.

        The state is None for a new partition. The present state is in the image that `finish` gives.
        """
        if self._shown_partitions is not None:
            return self._shown_partitions
        topics, changed = self._current_topics(), self._changed_partitions
        shown = {key: changed[key] for key in sorted(changed) if key[0] in topics}
        if self._finished:
            self._shown_partitions = shown
        return shown

    @property
    def changed_configs(self) -> tuple[ConfigKey, ...]:
        """Resources whose dynamic configs changed or went away, ascending."""
        return tuple(sorted(self._changed_configs))

    @property
    def changed_features(self) -> tuple[str, ...]:
        """Names of features whose level was set or removed, ascending."""
        return tuple(sorted(self._changed_features))

    @property
    def changed_voters(self) -> tuple[int, ...]:
        """Node ids of voters whose directory id was set, ascending."""
        return tuple(sorted(self._changed_voters))

    @property
    def changed_scram_credentials(self) -> tuple[ScramKey, ...]:
        """Users' credentials that were set or removed, ascending."""
        return tuple(sorted(self._changed_scram_credentials))

    @property
    def changed_acls(self) -> tuple[Acl, ...]:
        """ACLs that were added or removed, ascending."""
        return tuple(sorted(self._changed_acls))

    @property
    def changed_client_quotas(self) -> tuple[QuotaEntity, ...]:
        """Entities whose quotas changed or went away, ascending."""
        return tuple(sorted(self._changed_client_quotas))

    # Applying -------------------------------------------------------------------------------------

    def apply(self, record: Record, offset: int, epoch: int) -> None:
        """Applies one record of the entry at `offset`, written in term `epoch`.

        Raises RecordDoesNotFitError; the delta must not be used any more then.
        """
        assert not self._finished, "a finished delta shares its sections with the image it made"
        _APPLY[type(record)](self, record, offset)

    def finish(self, offset: int, epoch: int) -> MetadataImage:
        """The next image, at `offset` and term `epoch`. Nothing can be applied afterwards."""
        self._finished = True
        topics = self._current_topics()
        if self._partitions:
            own = self._own_topics()
            for topic_id, partitions in self._partitions.items():
                own[topic_id] = TopicImage(topic_id, own[topic_id].name, tuple(partitions))
            topics = own
        base = self.base
        return MetadataImage(
            offset=offset,
            epoch=epoch,
            brokers=base.brokers if self._brokers is None else self._brokers,
            topics=topics,
            topic_ids=base.topic_ids if self._topic_ids is None else self._topic_ids,
            configs=base.configs if self._configs is None else self._configs,
            next_producer_id=self._next_producer_id,
            features=base.features if self._features is None else self._features,
            voters=base.voters if self._voters is None else self._voters,
            scram_credentials=(
                base.scram_credentials if self._scram_credentials is None else self._scram_credentials
            ),
            acls=base.acls if self._acls is None else self._acls,
            client_quotas=base.client_quotas if self._client_quotas is None else self._client_quotas,
        )

    # Brokers

    def _register_broker(self, record: RegisterBroker, offset: int) -> None:
        brokers = self._own_brokers()
        existing = brokers.get(record.broker_id)
        if existing is not None and existing.epoch >= offset:
            raise StaleBrokerEpochError(
                f"broker {record.broker_id} is registered at offset {existing.epoch} already, not before {offset}"
            )
        brokers[record.broker_id] = BrokerImage(
            broker_id=record.broker_id,
            epoch=offset,
            incarnation_id=record.incarnation_id,
            listeners=record.listeners,
            rack=record.rack,
            log_dirs=record.log_dirs,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            features=record.features,
        )
        self._changed_brokers[record.broker_id] = None

    def _unregister_broker(self, record: UnregisterBroker, offset: int) -> None:
        self._registered(record.broker_id, record.broker_epoch)
        del self._own_brokers()[record.broker_id]
        self._changed_brokers[record.broker_id] = None

    def _change_broker(self, record: BrokerChange, offset: int) -> None:
        broker = self._registered(record.broker_id, record.broker_epoch)
        shutdown = record.in_controlled_shutdown
        self._own_brokers()[record.broker_id] = replace(
            broker,
            fenced=broker.fenced if record.fenced is None else record.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown if shutdown is None else shutdown,
        )
        self._changed_brokers[record.broker_id] = None

    def _registered(self, broker_id: int, broker_epoch: int) -> BrokerImage:
        broker = (self.base.brokers if self._brokers is None else self._brokers).get(broker_id)
        if broker is None:
            raise UnknownBrokerError(f"broker {broker_id} is not registered")
        if broker.epoch != broker_epoch:
            raise StaleBrokerEpochError(
                f"broker {broker_id} is registered with epoch {broker.epoch}, not {broker_epoch}"
            )
        return broker

    def _own_brokers(self) -> dict[int, BrokerImage]:
        if self._brokers is None:
            self._brokers = dict(self.base.brokers)
        return self._brokers

    # Topics and partitions

    def _create_topic(self, record: Topic, offset: int) -> None:
        topics, topic_ids = self._own_topics(), self._own_topic_ids()
        if record.topic_id == ZERO_TOPIC_ID or record.topic_id in topics:
            raise TopicExistsError(f"topic id {record.topic_id.hex()} is zero or taken")
        if record.name in topic_ids:
            raise TopicExistsError(f"topic {record.name!r} exists already")
        topics[record.topic_id] = TopicImage(record.topic_id, record.name, ())
        topic_ids[record.name] = record.topic_id
        self._changed_topics[record.topic_id] = None

    def _create_partition(self, record: Partition, offset: int) -> None:
        partitions = self._own_partitions(record.topic_id)
        if record.partition != len(partitions):
            raise UnknownPartitionError(
                f"partition {record.partition} of topic {record.topic_id.hex()} cannot follow "
                f"{len(partitions)} partitions"
            )
        partition = PartitionImage(
            replicas=record.replicas,
            isr=record.replicas if record.isr == record.replicas else record.isr,
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            leader_recovery_state=record.leader_recovery_state,
            removing_replicas=record.removing_replicas,
            adding_replicas=record.adding_replicas,
            elr=record.elr,
            last_known_elr=record.last_known_elr,
            offline_replicas=record.offline_replicas,
        )
        partition.check()
        partitions.append(partition)
        self._changed_topics[record.topic_id] = None
        self._changed_partitions[record.topic_id, record.partition] = None

    def _change_partition(self, record: PartitionChange, offset: int) -> None:
        partitions = self._own_partitions(record.topic_id)
        if record.partition >= len(partitions):
            raise UnknownPartitionError(
                f"topic {record.topic_id.hex()} has {len(partitions)} partitions, no number {record.partition}"
            )
        before = partitions[record.partition]
        after = changed_partition(before, record)
        after.check()
        partitions[record.partition] = after
        self._changed_topics[record.topic_id] = None
        self._changed_partitions.setdefault((record.topic_id, record.partition), before)

    def _remove_topic(self, record: RemoveTopic, offset: int) -> None:
        topic = self._own_topics().pop(record.topic_id, None)
        if topic is None:
            raise UnknownTopicError(f"there is no topic with id {record.topic_id.hex()}")
        del self._own_topic_ids()[topic.name]
        self._partitions.pop(record.topic_id, None)
        self._changed_topics[record.topic_id] = None
        config_key = (TOPIC_RESOURCE, topic.name)
        if config_key in self._current_configs():
            del self._own_configs()[config_key]
            self._changed_configs[config_key] = None

    def _current_topics(self) -> Mapping[bytes, TopicImage]:
        return self.base.topics if self._topics is None else self._topics

    def _own_topics(self) -> dict[bytes, TopicImage]:
        if self._topics is None:
            self._topics = dict(self.base.topics)
        return self._topics

    def _own_topic_ids(self) -> dict[str, bytes]:
        if self._topic_ids is None:
            self._topic_ids = dict(self.base.topic_ids)
        return self._topic_ids

    def _own_partitions(self, topic_id: bytes) -> list[PartitionImage]:
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            topic = self._current_topics().get(topic_id)
            if topic is None:
                raise UnknownTopicError(f"there is no topic with id {topic_id.hex()}")
            partitions = self._partitions[topic_id] = list(topic.partitions)
        return partitions

    # Configs, producer ids, features, voters, ACLs, quotas

    def _set_config(self, record: Config, offset: int) -> None:
        key = (record.resource_type, record.resource_name)
        if record.resource_type == TOPIC_RESOURCE:
            topic_ids = self.base.topic_ids if self._topic_ids is None else self._topic_ids
            if record.resource_name not in topic_ids:
                raise UnknownTopicError(f"there is no topic {record.resource_name!r} to configure")
        configs = self._own_configs()
        values = dict(configs.get(key, {}))
        if record.value is None:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if values:
            configs[key] = values
        else:
            configs.pop(key, None)
        self._changed_configs[key] = None

    def _current_configs(self) -> Mapping[ConfigKey, Mapping[str, str]]:
        return self.base.configs if self._configs is None else self._configs

    def _own_configs(self) -> dict[ConfigKey, Mapping[str, str]]:
        if self._configs is None:
            self._configs = dict(self.base.configs)
        return self._configs

    def _take_producer_ids(self, record: ProducerIds, offset: int) -> None:
        self._registered(record.broker_id, record.broker_epoch)
        if record.next_producer_id <= self._next_producer_id:
            raise InvalidProducerIdError(
                f"producer ids below {self._next_producer_id} are handed out; {record.next_producer_id} is no step"
            )
        self._next_producer_id = record.next_producer_id

    def _set_feature_level(self, record: FeatureLevel, offset: int) -> None:
        if self._features is None:
            self._features = dict(self.base.features)
        if record.level:
            self._features[record.name] = record.level
        else:
            self._features.pop(record.name, None)
        self._changed_features[record.name] = None

    def _set_voter_identity(self, record: VoterIdentity, offset: int) -> None:
        if self._voters is None:
            self._voters = dict(self.base.voters)
        self._voters[record.node_id] = record.directory_id
        self._changed_voters[record.node_id] = None

    def _add_acl(self, record: AccessControlEntry, offset: int) -> None:
        acls = self._own_acls()
        if record.acl in acls:
            raise AclExistsError(f"there is such an ACL already: {record.acl}")
        acls.add(record.acl)
        self._changed_acls[record.acl] = None

    def _remove_acl(self, record: RemoveAccessControlEntry, offset: int) -> None:
        acls = self._own_acls()
        if record.acl not in acls:
            raise UnknownAclError(f"there is no such ACL: {record.acl}")
        acls.remove(record.acl)
        self._changed_acls[record.acl] = None

    def _own_acls(self) -> set[Acl]:
        if self._acls is None:
            self._acls = set(self.base.acls)
        return self._acls

    def _set_client_quota(self, record: ClientQuota, offset: int) -> None:
        if self._client_quotas is None:
            self._client_quotas = dict(self.base.client_quotas)
        values = dict(self._client_quotas.get(record.entity, {}))
        if record.value is None:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if values:
            self._client_quotas[record.entity] = values
        else:
            self._client_quotas.pop(record.entity, None)
        self._changed_client_quotas[record.entity] = None

    # Users

    def _set_scram_credential(self, record: UserScramCredential, offset: int) -> None:
        key = (record.name, record.mechanism)
        self._own_scram_credentials()[key] = ScramCredential(
            record.salt, record.stored_key, record.server_key, record.iterations
        )
        self._changed_scram_credentials[key] = None

    def _remove_scram_credential(self, record: RemoveUserScramCredential, offset: int) -> None:
        key = (record.name, record.mechanism)
        if self._own_scram_credentials().pop(key, None) is None:
            raise RecordDoesNotFitError(
                f"user {record.name!r} has no credential of mechanism {record.mechanism}"
            )
        self._changed_scram_credentials[key] = None

    def _own_scram_credentials(self) -> dict[ScramKey, ScramCredential]:
        if self._scram_credentials is None:
            self._scram_credentials = dict(self.base.scram_credentials)
        return self._scram_credentials

    def _no_op(self, record: NoOp, offset: int) -> None:
        pass


def changed_partition(before: PartitionImage, record: PartitionChange) -> PartitionImage:
    """The partition after the change: partition epoch + 1; leader epoch + 1 when a leader is given."""
    replicas = before.replicas if record.replicas is None else record.replicas
    isr = before.isr if record.isr is None else record.isr
    removing, adding = record.removing_replicas, record.adding_replicas
    elr, last_known_elr, offline = record.elr, record.last_known_elr, record.offline_replicas
    recovery, unclean = record.leader_recovery_state, record.unclean_leader_epoch
    return PartitionImage(
        replicas=replicas,
        isr=replicas if isr == replicas else isr,
        leader=before.leader if record.leader is None else record.leader,
        leader_epoch=before.leader_epoch + (record.leader is not None),
        partition_epoch=before.partition_epoch + 1,
        leader_recovery_state=before.leader_recovery_state if recovery is None else recovery,
        removing_replicas=before.removing_replicas if removing is None else removing,
        adding_replicas=before.adding_replicas if adding is None else adding,
        elr=before.elr if elr is None else elr,
        last_known_elr=before.last_known_elr if last_known_elr is None else last_known_elr,
        offline_replicas=before.offline_replicas if offline is None else offline,
        unclean_leader_epoch=before.unclean_leader_epoch if unclean is None else unclean,
    )


_APPLY: Mapping[type[Any], Callable[[MetadataDelta, Any, int], None]] = {
    RegisterBroker: MetadataDelta._register_broker,
    UnregisterBroker: MetadataDelta._unregister_broker,
    BrokerChange: MetadataDelta._change_broker,
    Topic: MetadataDelta._create_topic,
    Partition: MetadataDelta._create_partition,
    PartitionChange: MetadataDelta._change_partition,
    RemoveTopic: MetadataDelta._remove_topic,
    Config: MetadataDelta._set_config,
    ProducerIds: MetadataDelta._take_producer_ids,
    NoOp: MetadataDelta._no_op,
    FeatureLevel: MetadataDelta._set_feature_level,
    VoterIdentity: MetadataDelta._set_voter_identity,
    UserScramCredential: MetadataDelta._set_scram_credential,
    RemoveUserScramCredential: MetadataDelta._remove_scram_credential,
    AccessControlEntry: MetadataDelta._add_acl,
    RemoveAccessControlEntry: MetadataDelta._remove_acl,
    ClientQuota: MetadataDelta._set_client_quota,
}
