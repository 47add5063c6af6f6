"""Leaders and ISRs: the effects of brokers' comings and goings, and of their AlterPartition requests.

Guarantees: a fenced or stopping broker leads nothing and is in no ISR. If it leaves an ISR below min.insync.replicas,
it stays eligible for leadership (KIP-966), unless its logs may have lost something. A leader's ISR proposal is accepted
only against the very state that it was made on (leader epoch, partition epoch). Every broker in it must be registered
under the epoch that it names, unfenced and not stopping (KIP-497, 631, 841, 903), and its replica not offline. Without
the ELR feature the last member stays in the ISR of a partition that then has no leader. Called by `cluster_control`,
`replica_states`, `state` and the modules that change configs or features; the model is Kafka's
ReplicationControlManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from quorum.controller.decision import ClusterView, Decision, Unit, decided
from quorum.controller.election import Acceptable, Election
from quorum.controller.partition_change_builder import PartitionChangeBuilder, TopicSettings
from quorum.metadata.delta import changed_partition
from quorum.metadata.image import PartitionId, PartitionImage
from quorum.metadata.records import RECOVERED, RECOVERING, PartitionChange
from quorum.rpc.messages import (
    NO_ERROR,
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResult,
    AlterPartitionTopicResult,
    BrokerState,
)


def leave(view: ClusterView, leaving: Collection[int]) -> list[Unit]:
    """Takes brokers out of all ISRs and leaderships; one unit per partition.

    O(partitions with one of the brokers in the ISR).
    """
    gone = frozenset(leaving)
    return changes(
        view,
        sorted({key for broker_id in gone for key in view.index.in_sync_on(broker_id)}),
        acceptable=lambda broker_id: broker_id not in gone and view.is_active(broker_id),
        prepare=lambda builder: builder.without(gone),
    )


def start_over(view: ClusterView, broker_id: int, *, cleanly: bool) -> list[Unit]:
    """Ends the effects of a registration, when the broker registers anew or is removed for good.

    It leaves all ISRs, and unless it stopped `cleanly` all ELRs, too: its logs may lack records of before. The offline
    marks of its replicas go: a broker that registers reports anew. O(partitions with the broker in ISR or ELR, or
    offline there).
    """
    gone = frozenset((broker_id,))
    index = view.index
    eligible = [] if cleanly else index.eligible_on(broker_id)

    def prepare(builder: PartitionChangeBuilder) -> None:
        builder.without(gone).online(broker_id)
        builder.unclean_shutdown_replicas = () if cleanly else gone

    return changes(
        view,
        sorted({*index.in_sync_on(broker_id), *eligible, *index.offline_on(broker_id)}),
        acceptable=lambda candidate: candidate != broker_id and view.is_active(candidate),
        prepare=prepare,
    )


def come_back(view: ClusterView, ready: Collection[int]) -> list[Unit]:
    """Gives leaders to the partitions that have none and can have one once these brokers are unfenced."""
    index = view.index
    return changes(
        view,
        sorted({key for broker_id in ready for key in index.leaderless_on(broker_id)}),
        acceptable=lambda candidate: candidate in ready or view.is_active(candidate),
    )


def settle(view: ClusterView) -> list[Unit]:
    """Gives leaders to all partitions that have none and can have one, and gives up ELRs where the ISR
    suffices.

    There are some only if an earlier controller was lost between two proposals of one decision, or had other static
    configs than this one. O(partitions without a leader, or with an ELR).
    """
    return changes(view, sorted({*view.index.leaderless(), *view.index.with_elr()}))


def elect_unclean(view: ClusterView, key: PartitionId) -> PartitionChange | None:
    """A leader for a partition that has none: any living replica, if none with all records is alive."""
    builder = PartitionChangeBuilder.of(view, key)
    builder.election = Election.UNCLEAN
    return builder.build()


def switch_elr(view: ClusterView, *, enabled: bool) -> list[Unit]:
    """The changes that the feature's new level demands: without it no ELR is kept and no ISR is empty; with it no
    fenced broker is in an ISR.
    """

    def prepare(builder: PartitionChangeBuilder) -> None:
        builder.elr_enabled = enabled
        if enabled:
            builder.target_isr = tuple(filter(view.is_active, builder.target_isr))

    return changes(view, sorted({*view.index.leaderless(), *view.index.with_elr()}), prepare=prepare)


def changes(
    view: ClusterView,
    keys: Iterable[PartitionId],
    *,
    acceptable: Acceptable | None = None,
    prepare: Callable[[PartitionChangeBuilder], object] | None = None,
) -> list[Unit]:
    """The changes of partitions whose targets `prepare` sets; one unit for each that changes.

    `acceptable` says which brokers may lead; by default, the active ones. O(keys).
    """
    units = []
    settings: dict[bytes, TopicSettings] = {}
    may_lead = view.is_active if acceptable is None else acceptable
    for key in keys:
        topic_id, number = key
        if topic_id not in settings:
            settings[topic_id] = TopicSettings.of(view, topic_id)
        partition = view.image.topics[topic_id].partitions[number]
        builder = PartitionChangeBuilder(key, partition, may_lead, settings[topic_id])
        if prepare is not None:
            prepare(builder)
        record = builder.build()
        if record is not None:
            units.append(Unit(record))
    return units


def alter_partition(view: ClusterView, request: AlterPartitionRequest) -> Decision:
    """Judges every partition that a leader proposes an ISR for; refusals are per partition.

    Raises ControllerError STALE_BROKER_EPOCH when the request comes from an older registration.
    """
    view.registered(request.broker_id, request.broker_epoch)
    altered: dict[PartitionId, PartitionImage] = {}
    units: list[Unit] = []
    topics = []
    for topic in request.topics:
        results = []
        settings: TopicSettings | None = None
        for item in topic.partitions:
            key = (topic.topic_id, item.partition)
            before = altered.get(key) or view.image.partition(*key)
            if before is None:
                error = (
                    "UNKNOWN_TOPIC_OR_PARTITION"
                    if topic.topic_id in view.image.topics
                    else "UNKNOWN_TOPIC_ID"
                )
                results.append(AlterPartitionResult(item.partition, error))
                continue
            error = _refusal(view, request.broker_id, before, item)
            if error != NO_ERROR:
                results.append(AlterPartitionResult(item.partition, error))
                continue
            settings = settings or TopicSettings.of(view, topic.topic_id)
            record = _accepted(
                PartitionChangeBuilder(key, before, view.is_active, settings), key, before, item
            )
            units.append(Unit(record))
            before = altered[key] = changed_partition(before, record)
            results.append(_result(item.partition, before))
        topics.append(AlterPartitionTopicResult(topic.topic_id, tuple(results)))
    return decided(AlterPartitionResponse(tuple(topics)), *units)


def _refusal(view: ClusterView, broker_id: int, partition: PartitionImage, item: AlterPartitionItem) -> str:
    """Kafka's error name for an item that cannot be accepted, or "NONE"."""
    if item.leader_epoch > partition.leader_epoch or item.partition_epoch > partition.partition_epoch:
        return "NOT_CONTROLLER"  # the sender has seen a newer controller's decisions than this one knows
    if item.leader_epoch < partition.leader_epoch:
        return "FENCED_LEADER_EPOCH"
    if broker_id != partition.leader:
        return "INVALID_REQUEST"
    if item.partition_epoch < partition.partition_epoch:
        return "INVALID_UPDATE_VERSION"
    isr = [member.broker_id for member in item.new_isr_with_epochs]
    if len(set(isr)) != len(isr) or partition.leader not in isr or not set(isr) <= set(partition.replicas):
        return "INVALID_REQUEST"
    if item.leader_recovery_state not in (RECOVERED, RECOVERING):
        return "INVALID_REQUEST"
    if item.leader_recovery_state == RECOVERING and (
        len(isr) > 1 or partition.leader_recovery_state == RECOVERED
    ):
        return "INVALID_REQUEST"
    if not all(_is_eligible(view, partition, member) for member in item.new_isr_with_epochs):
        return "INELIGIBLE_REPLICA"
    return NO_ERROR


def _is_eligible(view: ClusterView, partition: PartitionImage, member: BrokerState) -> bool:
    """Whether the broker may be in the ISR, under exactly the registration that the leader saw (KIP-903)."""
    if member.broker_id in partition.offline_replicas:
        return False
    broker = view.image.brokers.get(member.broker_id)
    return broker is not None and broker.is_active and broker.epoch == member.broker_epoch


def _accepted(
    builder: PartitionChangeBuilder, key: PartitionId, partition: PartitionImage, item: AlterPartitionItem
) -> PartitionChange:
    """The record of an accepted item, its ISR in replica order. The builder is the partition's.

    An item that changes nothing is recorded, too, so that the partition epoch grows: a leader withdraws a proposal of
    unknown outcome by proposing the present ISR, and late copies of that proposal must be fenced from then on.
    """
    wanted = {member.broker_id for member in item.new_isr_with_epochs}
    if wanted != set(partition.isr):
        builder.target_isr = tuple(replica for replica in partition.replicas if replica in wanted)
    builder.target_leader_recovery_state = item.leader_recovery_state
    return builder.build() or PartitionChange(topic_id=key[0], partition=key[1], isr=partition.isr)


def _result(number: int, partition: PartitionImage) -> AlterPartitionResult:
    return AlterPartitionResult(
        partition=number,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        partition_epoch=partition.partition_epoch,
        leader_recovery_state=partition.leader_recovery_state,
        elr=partition.elr,
    )
