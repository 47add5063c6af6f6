"""Mutations of the coordinators of groups: owners of partitions, fencing, and what is told of offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from kraft.chaos.scenario import TopicSpec, WorkloadSpec
from kraft.chaos.workload import base
from kraft.chaos.workload.groups import member
from kraft.coordinator import runtime
from kraft.coordinator.groups import consumer
from kraft.coordinator.groups.classic import ClassicGroup
from kraft.coordinator.groups.consumer import ConsumerGroup
from kraft.coordinator.groups.offsets import GroupOffsets
from kraft.protocol.errors import ErrorCode
from tests.chaos.mutations.registry import Mutation, Patch, replaced_by
from tests.chaos.mutations.scenarios import ORDERS
from tests.chaos.mutations.stages import ClusterStage, Storm, default

CLASSIC, CONSUMER = "classic-member", "consumer-member"


def _stage(name: str, kind: str, faults: tuple[str, ...], *, mean_s: float = 1.0) -> ClusterStage:
    """A group of three whose members freeze and crash all the time, and that has a topic of its own."""
    group = kind.removesuffix("-member")
    return ClusterStage(
        name,
        Storm(
            faults,
            seconds=12.0,
            mean_s=mean_s,
            topics=(TopicSpec(ORDERS, 4, 3, {"min.insync.replicas": "2"}),),
            workloads=(
                WorkloadSpec("idempotent-producer", 0, ORDERS, per_second=15.0),
                WorkloadSpec("consumer", 1, ORDERS, per_second=15.0),
                *(WorkloadSpec(kind, stream, ORDERS, per_second=10.0, group=group) for stream in (2, 3, 4)),
                WorkloadSpec("group-topic", 5, per_second=1.0, group=group),
            ),
            properties={"offsets.topic.num.partitions": "1"},
        ),
        settings=(
            default(base, "LIFE_S", (3.0, 9.0)),
            default(member, "FREEZING_SHARE", 1.0),
            default(member, "FREEZE_AFTER_S", (1.0, 5.0)),
            default(member, "FETCH_ODDS", 0.5),
            default(member, "COMMIT_ODDS", 0.9),
        ),
    )


CLASSIC_GROUP = _stage("a classic group", CLASSIC, ("pause", "kill"), mean_s=4.0)
CONSUMER_GROUP = _stage("a consumer group", CONSUMER, ("pause", "kill"), mean_s=4.0)
COORDINATORS_CHANGE = _stage(
    "coordinators change", CLASSIC, ("kill-leader", "restart", "restart", "partition", "clogged-link")
)


def _of_another_member(original: Callable[..., None]) -> Callable[..., None]:
    def answer_sync(group: Any, token: int, asking: Any, decisions: Any) -> None:
        others = [one for one in group._members.values() if one is not asking and one.assignment]
        original(group, token, others[0] if others else asking, decisions)

    return answer_sync


def _free_at_once(original: Callable[..., Any]) -> Callable[..., Any]:
    def reconcile(current: Any, target_epoch: int, target: Any, owned: Any, is_free: Any) -> Any:
        return original(current, target_epoch, target, owned, lambda topic_id, partition: True)

    return reconcile


def _one_left_out(original: Callable[..., Any]) -> Callable[..., Any]:
    def assign(group: Any, *arguments: Any, **options: Any) -> Any:
        target = original(group, *arguments, **options)
        return {
            member_id: {topic_id: numbers - {0} for topic_id, numbers in assignment.items()}
            for member_id, assignment in target.items()
        }

    return assign


def _all_to_all(original: Callable[..., Any]) -> Callable[..., Any]:
    def assign(group: Any, *arguments: Any, **options: Any) -> Any:
        target = original(group, *arguments, **options)
        everything: dict[bytes, frozenset[int]] = {}
        for assignment in target.values():
            for topic_id, numbers in assignment.items():
                everything[topic_id] = everything.get(topic_id, frozenset()) | numbers
        return dict.fromkeys(target, everything)

    return assign


def _only_once(original: Callable[..., None]) -> Callable[..., None]:
    elected: WeakKeyDictionary[Any, set[int]] = WeakKeyDictionary()

    def on_elected(coordinator: Any, partition: Any, leader_epoch: int) -> None:
        before = elected.setdefault(coordinator, set())
        if partition.partition not in before:
            original(coordinator, partition, leader_epoch)
        before.add(partition.partition)

    return on_elected


class _All:
    """Contains everything."""

    def __contains__(self, _: object) -> bool:
        return True


def _only_what_is_new(original: Callable[..., None]) -> Callable[..., None]:
    def replay(offsets: Any, record: Any, *rest: Any) -> None:
        partitions = offsets._locate(record.key)
        if offsets._indexes[record.key] not in partitions:
            original(offsets, record, *rest)

    return replay


MUTATIONS = (
    Mutation(
        "assignment-of-another-member",
        "SyncGroup is answered with the assignment of another member of the generation",
        ("two-owners",),
        CLASSIC_GROUP,
        (Patch(ClassicGroup, "_answer_sync", _of_another_member),),
    ),
    Mutation(
        "partition-handed-over-before-it-is-given-up",
        "a member of KIP-848 gets a partition while its former owner has not given it up",
        ("both-own",),
        CONSUMER_GROUP,
        (Patch(consumer, "reconcile", _free_at_once),),
    ),
    Mutation(
        "partition-assigned-to-everybody",
        "the assignors of KIP-848 give each partition to all members, which get it at once",
        ("two-owners",),
        CONSUMER_GROUP,
        (Patch(ConsumerGroup, "_assign", _all_to_all), Patch(consumer, "reconcile", _free_at_once)),
    ),
    Mutation(
        "partition-assigned-to-nobody",
        "the assignors of KIP-848 leave out the first partition of each topic",
        ("liveness",),
        CONSUMER_GROUP,
        (Patch(ConsumerGroup, "_assign", _one_left_out),),
    ),
    Mutation(
        "commit-of-any-generation",
        "a classic group accepts commits of whatever member and generation",
        ("fenced-commit",),
        CLASSIC_GROUP,
        (Patch(ClassicGroup, "check_commit", replaced_by(lambda *_: ErrorCode.NONE)),),
    ),
    Mutation(
        "commit-of-any-member-epoch",
        "a group of KIP-848 accepts commits of whatever member and epoch",
        ("fenced-commit",),
        CONSUMER_GROUP,
        (Patch(ConsumerGroup, "check_commit", replaced_by(lambda *_: ErrorCode.NONE)),),
    ),
    Mutation(
        "told-before-it-is-committed",
        "a coordinator replies as soon as it has appended",
        ("told-uncommitted",),
        CLASSIC_GROUP,
        (Patch(runtime._Positions, "required", replaced_by(lambda positions, about: 0)),),
    ),
    Mutation(
        "offsets-outlive-their-topic",
        "a topic made anew under a name inherits the offsets of the one before",
        ("unmade-commit",),
        CLASSIC_GROUP,
        (
            Patch(GroupOffsets, "_ids_alive", replaced_by(lambda offsets, name: _All())),
            Patch(GroupOffsets, "topics_deleted", replaced_by(lambda offsets, deleted: None)),
        ),
    ),
    Mutation(
        "coordinator-of-one-election-only",
        "a broker coordinates the groups of a partition only the first time that it is elected",
        ("liveness",),
        COORDINATORS_CHANGE,
        (Patch(runtime.Runtime, "on_elected", _only_once),),
    ),
    Mutation(
        "first-commit-kept-by-a-load",
        "a coordinator that loads keeps the first commit for each partition instead of the last",
        ("lost-commit",),
        COORDINATORS_CHANGE,
        (Patch(GroupOffsets, "replay", _only_what_is_new),),
    ),
)
