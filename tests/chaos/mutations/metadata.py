"""Mutations of the controller's decisions, and of the metadata that every node applies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kraft.broker.membership.lifecycle import BrokerLifecycle, BrokerState
from kraft.broker.membership.metadata_cache import MetadataCache
from kraft.broker.replicas import replica_manager
from partitions.isr import IsrState
from partitions.leadership import Leadership
from partitions.partition import Partition
from quorum.controller import partition_change_builder, replication_control
from quorum.controller.cluster_control import ClusterControl
from quorum.controller.decision import Unit
from quorum.controller.election import Elected
from quorum.controller.partition_change_builder import PartitionChangeBuilder
from quorum.controller.proposal import Proposal, ProposalFence
from quorum.errors import MalformedProposalError
from quorum.metadata import delta
from quorum.metadata.image import MetadataImage
from quorum.metadata.records import NO_LEADER, BrokerChange
from quorum.raft import metadata_state_machine
from quorum.raft.node import RaftNode
from quorum.raft.transport import QuorumTransport
from tests.chaos.mutations import scenarios
from tests.chaos.mutations.registry import Mutation, Patch, replaced_by

# -- who may be in an ISR, who may lead


def _registered_ever(leading: Any, follower: Any) -> bool:
    return follower.broker_epoch is not None and leading._eligibility.may_join_isr(follower.broker_id)


def _active_in_any_registration(view: Any, partition: Any, member: Any) -> bool:
    broker = view.image.brokers.get(member.broker_id)
    return broker is not None and broker.is_active


def _registered_even_if_fenced(view: Any, partition: Any, member: Any) -> bool:
    broker = view.image.brokers.get(member.broker_id)
    return broker is not None and broker.epoch == member.broker_epoch


def _anybody_leads(original: Callable[..., Elected]) -> Callable[..., Elected]:
    def elect(partition: Any, election: Any, acceptable: Any, **targets: Any) -> Elected:
        elected = original(partition, election, acceptable, **targets)
        others = [replica for replica in targets["replicas"] if acceptable(replica)]
        return Elected(others[0]) if elected.leader == NO_LEADER and others else elected

    return elect


# -- who stays eligible for leadership


def _under_its_own_min_isr(leading: Any, min_insync_replicas: int) -> bool:
    return len(leading.isr.committed) < leading.effective_min_isr(min_insync_replicas)


def _every_stop_was_clean(original: Callable[..., list[Unit]]) -> Callable[..., list[Unit]]:
    def start_over(view: Any, broker_id: int, *, cleanly: bool) -> list[Unit]:
        return original(view, broker_id, cleanly=True)

    return start_over


def _last_known_leader_first(original: Callable[..., Elected]) -> Callable[..., Elected]:
    def elect(partition: Any, election: Any, acceptable: Any, **targets: Any) -> Elected:
        last_known = partition.last_known_elr
        if not targets["isr"] and last_known and acceptable(last_known[0]):
            return Elected(last_known[0], unclean=last_known[0] not in targets["elr"])
        elected = original(partition, election, acceptable, **targets)
        return Elected(NO_LEADER) if last_known and not targets["isr"] else elected

    return elect


def _same_leader_epoch(original: Callable[..., Any]) -> Callable[..., Any]:
    def changed_partition(before: Any, record: Any) -> Any:
        return replace(original(before, record), leader_epoch=before.leader_epoch)

    return changed_partition


def _shutdown_without_leaving(original: Callable[..., Any]) -> Callable[..., Any]:
    def controlled_shutdown(control: Any, *rest: Any) -> Any:
        units, proposed = original(control, *rest)
        return [
            unit for unit in units if all(isinstance(one, BrokerChange) for one in unit.records)
        ], proposed

    return controlled_shutdown


# -- images


def _any_state_is_news(partition: Any, state: Any) -> bool:
    return partition._end is None and state.leader_epoch >= partition.leader_epoch


def _adopt_any(isr: Any, members: Any, elr: Any, partition_epoch: int) -> None:
    isr.committed = members
    isr.elr = elr
    isr.partition_epoch = partition_epoch
    isr._clear()


def _isr_in_any_order(original: Callable[..., Any]) -> Callable[..., Any]:
    calls = 0

    def changed_partition(before: Any, record: Any) -> Any:
        nonlocal calls
        calls += 1
        after = original(before, record)
        turn = calls % max(1, len(after.isr))
        return replace(after, isr=after.isr[turn:] + after.isr[:turn])

    return changed_partition


def _without_configs(original: Any) -> Any:
    def decode_steps(*arguments: Any) -> Any:
        image = yield from original.__func__(*arguments)
        return replace(image, configs={})

    return staticmethod(decode_steps)


def _any_sequence(original: Callable[..., Any]) -> Callable[..., Any]:
    def apply_proposal(image: Any, fence: Any, data: Any, offset: int, entry_term: int) -> Any:
        try:
            fence = ProposalFence(entry_term, Proposal.decode(data).sequence)
        except MalformedProposalError:
            return original(image, fence, data, offset, entry_term)
        return original(image, fence, data, offset, entry_term)

    return apply_proposal


def _position_without_state(node: Any, clearJournal: bool) -> None:
    snapshot, _ = node._transfer.take_arrival()
    node._SyncObj__raftLog.join(snapshot.prev, snapshot.last)
    node._SyncObj__raftLastApplied = snapshot.last[1]


# -- who acts for the cluster


def _every_vote_counts_twice(transport: Any, peer: Any, message: dict[str, Any]) -> None:
    term = message["term"]
    if term == transport.node.term():
        if transport._votes[0] != term:
            transport._votes = (term, {})
        transport._votes[1][int(peer.id)] = transport._links[int(peer.id)].directory_id
        transport.node.deliver(peer, message)
        transport.node.deliver(peer, message)


async def _heartbeats_until_one_fails(lifecycle: Any) -> None:
    while lifecycle.state is not BrokerState.SHUTTING_DOWN:
        await lifecycle._heartbeat()
        await asyncio.sleep(lifecycle._pause_s())


MUTATIONS = (
    Mutation(
        "broker-epoch-unchecked",
        "what an earlier incarnation of a broker had copied vouches for the present one (KIP-903)",
        ("leader-candidate-completeness",),
        scenarios.ALL_IN_SYNC,
        (
            Patch(Leadership, "_is_eligible", replaced_by(_registered_ever)),
            Patch(Leadership, "is_registered", replaced_by(lambda leading, broker, epoch: epoch >= 0)),
            Patch(replication_control, "_is_eligible", replaced_by(_active_in_any_registration)),
        ),
    ),
    Mutation(
        "fenced-broker-joins-the-isr",
        "a broker that the controller has fenced may join an ISR (KIP-841)",
        ("fenced-not-in-isr",),
        scenarios.CUT_OFF,
        (
            Patch(replication_control, "_is_eligible", replaced_by(_registered_even_if_fenced)),
            Patch(MetadataCache, "may_join_isr", replaced_by(lambda cache, broker_id: True)),
        ),
    ),
    Mutation(
        "leader-elected-outside-the-isr",
        "when no member of the ISR can lead, another replica does, and nobody is told that it is unclean",
        ("leader-completeness",),
        scenarios.ELECTIONS,
        (Patch(partition_change_builder, "elect", _anybody_leads),),
    ),
    Mutation(
        "unclean-leader-is-silent",
        "who leads after an unclean election does not say from which offset on records are lost",
        ("unclean-election-reported",),
        scenarios.UNCLEAN,
        (Patch(replica_manager, "_log_leads", replaced_by(lambda partition, state: None)),),
    ),
    Mutation(
        "unclean-restart-stays-eligible",
        "a broker that comes back without a clean stop keeps its place in the ELR (KIP-966)",
        ("eligible-leaders",),
        scenarios.ALL_DOWN,
        (Patch(replication_control, "start_over", _every_stop_was_clean),),
    ),
    Mutation(
        "elr-not-cleared",
        "who was eligible stays so when the ISR is large enough to commit without it (KIP-966)",
        ("eligible-leaders",),
        scenarios.FEW_IN_SYNC,
        (
            Patch(PartitionChangeBuilder, "_isr_suffices", replaced_by(lambda builder: False)),
            Patch(Leadership, "is_under_min_isr", replaced_by(_under_its_own_min_isr)),
        ),
    ),
    Mutation(
        "last-known-leader-before-the-elr",
        "the last known leader leads although somebody who has all records is eligible (KIP-966)",
        ("leader-completeness",),
        scenarios.ALL_DOWN,
        (Patch(partition_change_builder, "elect", _last_known_leader_first),),
    ),
    Mutation(
        "leader-epoch-not-bumped",
        "a new leader leads in the epoch of the one before (KIP-101)",
        ("one-leader-per-epoch",),
        scenarios.ELECTIONS,
        (
            Patch(delta, "changed_partition", _same_leader_epoch),
            Patch(replication_control, "changed_partition", _same_leader_epoch),
        ),
    ),
    Mutation(
        "controlled-shutdown-keeps-leaders",
        "a broker that shuts down stays leader and in sync until it is gone (KIP-631)",
        ("fenced-not-in-isr",),
        scenarios.ELECTIONS,
        (Patch(ClusterControl, "_controlled_shutdown", _shutdown_without_leaving),),
    ),
    Mutation(
        "stale-metadata-applied",
        "a leader goes back to an older ISR than the controller's answer has told it",
        ("epochs-grow",),
        scenarios.SLOW_CONTROL,
        (
            Patch(Partition, "_is_news", replaced_by(_any_state_is_news)),
            Patch(IsrState, "adopt", replaced_by(_adopt_any)),
        ),
    ),
    Mutation(
        "image-depends-on-who-applies",
        "the order of an ISR comes from how often the process has applied a change (as from a set)",
        ("metadata-agreement",),
        scenarios.CONTROLLERS,
        (Patch(delta, "changed_partition", _isr_in_any_order),),
    ),
    Mutation(
        "snapshot-incomplete",
        "what is read back from an image lacks the configs (KIP-630)",
        ("metadata-agreement",),
        scenarios.CONTROLLERS,
        (Patch(MetadataImage, "decode_steps", _without_configs),),
    ),
    Mutation(
        "snapshot-installed-half",
        "a voter that gets a snapshot takes its position and not its state (KIP-630)",
        ("metadata-agreement",),
        scenarios.CONTROLLERS,
        (Patch(RaftNode, "_SyncObj__loadDumpFile", replaced_by(_position_without_state)),),
    ),
    Mutation(
        "proposal-sequence-ignored",
        "a proposal is applied though one before it is missing, such as the one that unfences a broker",
        ("fenced-not-in-isr",),
        scenarios.OVERLOADED_QUORUM,
        (Patch(metadata_state_machine, "apply_proposal", _any_sequence),),
    ),
    Mutation(
        "vote-counts-twice",
        "a candidate counts every vote twice, and so leads with less than a majority (Raft 5.2)",
        ("one-controller-per-epoch",),
        scenarios.FIVE_VOTERS,
        (Patch(QuorumTransport, "_on_response_vote", replaced_by(_every_vote_counts_twice)),),
    ),
    Mutation(
        "heartbeat-failure-is-final",
        "the first heartbeat that no controller answers ends the heartbeats, and with them the node",
        ("halted",),
        scenarios.CONTROLLERS,
        (Patch(BrokerLifecycle, "_heartbeats", replaced_by(_heartbeats_until_one_fails)),),
    ),
)
