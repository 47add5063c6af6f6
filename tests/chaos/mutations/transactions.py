"""Mutations of transactions: what enters a log, what ends it, what coordinators tell, and what readers are given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

from kraft.broker.coordinators.transaction_verification import TransactionVerifier
from kraft.broker.handlers.produce_transactions import ProducedTransaction
from kraft.broker.replicas.appends import Appended, Appends
from kraft.chaos.faults import context
from kraft.chaos.scenario import TopicSpec, WorkloadSpec
from kraft.chaos.swarm_features import LEDGER, PROCESSORS, RESULTS
from kraft.chaos.workload import base
from kraft.chaos.workload.groups import classic_member, member
from kraft.chaos.workload.transactions import processor, producer, session
from kraft.coordinator import runtime
from kraft.coordinator.groups.classic import ClassicGroup
from kraft.coordinator.groups.offsets import GroupOffsets
from kraft.coordinator.transactions.requests import InitProducer
from kraft.coordinator.transactions.shard import TransactionShard
from kraft.coordinator.transactions.transaction import State, Transaction
from kraft.protocol.errors import ErrorCode
from partitions.errors import PartitionError
from partitions.log.errors import LogError
from partitions.log.log import PartitionLog
from partitions.log.producers.log_producers import LogProducers
from partitions.log.producers.producer_state import ProducerState
from partitions.log.producers.transaction_index import AbortedTransactions
from partitions.log.producers.verifications import Verifications
from tests.chaos.mutations.registry import Mutation, Patch, replaced_by
from tests.chaos.mutations.scenarios import SHORT_SESSIONS
from tests.chaos.mutations.stages import ClusterStage, Storm, default

LATE_ONE_IN = 5
TOPIC = {"min.insync.replicas": "2", "segment.bytes": "65536"}


def _producer(stream: int, kind: str, number: int, version: int, per_second: float) -> WorkloadSpec:
    return WorkloadSpec(
        kind,
        stream,
        LEDGER,
        per_second=per_second,
        transactional_id=f"ledger-{number}",
        transaction_version=version,
    )


def _producers(name: str, version: int, *faults: str, mean_s: float = 0.8, **settings: Any) -> ClusterStage:
    """Two transactional producers, one of them with a zombie of its id, that freeze and crash all the time."""
    patches = [
        default(base, "LIFE_S", (3.0, 9.0)),
        default(producer, "FREEZE_AFTER_S", (1.0, 4.0)),
        default(context, "COORDINATOR_ODDS", 0.8),
    ]
    patches += [default(producer, name, value) for name, value in settings.items()]
    return ClusterStage(
        name,
        Storm(
            faults,
            seconds=12.0,
            mean_s=mean_s,
            topics=(TopicSpec(LEDGER, 2, 3, TOPIC),),
            workloads=(
                _producer(0, "transactional-producer", 0, version, 30.0),
                _producer(1, "transactional-producer", 1, version, 30.0),
                _producer(2, "zombie-producer", 0, version, 5.0),
                WorkloadSpec("committed-consumer", 3, LEDGER, per_second=40.0),
                WorkloadSpec("consumer", 4, LEDGER, per_second=40.0),
            ),
            properties={"transaction.state.log.num.partitions": "1", **SHORT_SESSIONS},
        ),
        settings=tuple(patches),
    )


def _processors(name: str, *faults: str, mean_s: float = 3.0) -> ClusterStage:
    """Three processors that freeze, are slow and lose their partitions to each other all the time."""
    return ClusterStage(
        name,
        Storm(
            faults,
            seconds=14.0,
            mean_s=mean_s,
            topics=(TopicSpec(LEDGER, 3, 3, TOPIC), TopicSpec(RESULTS, 2, 3, TOPIC)),
            workloads=(
                _producer(0, "transactional-producer", 0, 2, 30.0),
                *(
                    WorkloadSpec(
                        "processor",
                        1 + number,
                        LEDGER,
                        per_second=10.0,
                        group=PROCESSORS,
                        transactional_id=f"{PROCESSORS}-{number}",
                        output=RESULTS,
                    )
                    for number in range(3)
                ),
                WorkloadSpec("committed-consumer", 4, RESULTS, per_second=40.0),
                WorkloadSpec("committed-consumer", 5, LEDGER, per_second=40.0),
            ),
            properties={
                "transaction.state.log.num.partitions": "1",
                "offsets.topic.num.partitions": "1",
            },
        ),
        settings=(
            default(base, "LIFE_S", (3.0, 9.0)),
            default(member, "FREEZING_SHARE", 1.0),
            default(member, "FREEZE_AFTER_S", (1.0, 4.0)),
            default(processor, "SLOW_ODDS", 0.4),
            default(producer, "COMMITTED_SHARE", 0.7),
        ),
    )


def _answered_late(original: Callable[..., Any]) -> Callable[..., Any]:
    numbers = count()

    async def verify(verifier: Any, *arguments: Any, **options: Any) -> Any:
        code = await original(verifier, *arguments, **options)
        if next(numbers) % LATE_ONE_IN == 0:
            await asyncio.sleep(0.4)
        return code

    return verify


def _comes_again(original: Callable[..., Any]) -> Callable[..., Any]:
    def append_marker(appends: Any, key: Any, marker: Any) -> Any:
        def again() -> None:
            with suppress(PartitionError, LogError):
                original(appends, key, marker)

        asyncio.get_running_loop().call_later(0.15, again)
        return original(appends, key, marker)

    return append_marker


def _comes_late(original: Callable[..., Any]) -> Callable[..., Any]:
    numbers = count()

    def append_transactional(appends: Any, key: Any, records: Any, batch: Any, *, acks: int) -> Any:
        if next(numbers) % LATE_ONE_IN:
            return original(appends, key, records, batch, acks=acks)

        async def later() -> Any:
            await asyncio.sleep(0.4)
            appended = original(appends, key, records, batch, acks=acks)
            return appended if isinstance(appended, Appended) else await appended

        return asyncio.get_running_loop().create_task(later())

    return append_transactional


CALM = _producers("transactions in a calm cluster", 2, "clock-skew", mean_s=30.0)
COORDINATORS_DIE = _producers("coordinators of transactions die", 2, "kill-leader", "kill-leader", "pause")
COORDINATORS_ARE_CUT_OFF = _producers(
    "coordinators of transactions are cut off",
    2,
    "isolate-leader",
    "isolate-leader",
    "partition",
    mean_s=1.2,
    THINKS_ODDS=1.0,
)
"""From the other nodes, and not from their clients."""
LEADERS_ARE_CUT_OFF = ClusterStage(
    "leaders of transactions' partitions are cut off",
    _producers("", 2, "isolate-leader", "isolate-leader", "kill-leader", mean_s=1.2).scenario,
    (
        default(base, "LIFE_S", (3.0, 9.0)),
        default(context, "COORDINATOR_ODDS", 0.0),
        default(context, "LEADER_ODDS", 1.0),
        default(producer, "COMMITTED_SHARE", 0.4),
    ),
)
"""They write on for a while, and cut their logs when they follow."""
IMPATIENT = (
    *CALM.settings,
    default(session, "PATIENCE_S", (0.2,)),
    default(session, "DELIVERY_TRIES", (1.0,)),
)
"""Producers that abort while their batches are under way."""
LATE_BATCHES = ClusterStage(
    "batches come late",
    _producers("batches come late", 1, "clock-skew", mean_s=30.0).scenario,
    (*IMPATIENT, Patch(Appends, "append_transactional", _comes_late)),
)
"""As requests do that the network held back."""
LATE_VERIFICATIONS = ClusterStage(
    "verifications are answered late",
    LATE_BATCHES.scenario,
    (*IMPATIENT, Patch(TransactionVerifier, "verify", _answered_late)),
)
LATE_MARKERS = ClusterStage(
    "markers come again", CALM.scenario, (*CALM.settings, Patch(Appends, "append_marker", _comes_again))
)
"""Each comes once more, as a request does that the network held back while its sender tried again."""
PROCESSORS_FREEZE = _processors("processors freeze", "pause", "kill")
PROCESSORS_ARE_SLOW = ClusterStage(
    "processors are slower than their sessions",
    PROCESSORS_FREEZE.scenario,
    (
        default(processor, "SLOW_ODDS", 0.3),
        default(processor, "SLOW_S", (1.0, 4.0)),
        default(processor, "TIMEOUT_MS", 10_000),
        default(classic_member, "SESSION_TIMEOUTS_MS", (1_000,)),
    ),
)
"""The group goes on without them while they have a transaction open, which they commit nevertheless."""


def _not_raised(original: Callable[..., None]) -> Callable[..., None]:
    def prepare(transaction: Any, *arguments: Any) -> None:
        before = transaction.epoch
        original(transaction, *arguments)
        transaction.epoch = before

    return prepare


def _without_markers_again(original: Callable[..., None]) -> Callable[..., None]:
    def on_loaded(shard: Any, now: Any, decisions: Any) -> None:
        unfinished = shard._unfinished
        shard._unfinished = {
            name: None for name in unfinished if shard._transactions[name].state is State.ONGOING
        }
        original(shard, now, decisions)
        shard._unfinished = {**unfinished, **shard._unfinished}

    return on_loaded


def _forgets_the_open_one(original: Callable[..., Any]) -> Callable[..., Any]:
    def decide(shard: Any, token: int, asked: Any, *rest: Any) -> Any:
        transaction = isinstance(asked, InitProducer) and shard._transactions.get(asked.transactional_id)
        if transaction and transaction.state is State.ONGOING:
            transaction.state = State.EMPTY
            transaction.partitions.clear()
        return original(shard, token, asked, *rest)

    return decide


def _whatever_the_marker(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda offsets, producer_id, is_commit: original(offsets, producer_id, True)


def _not_in_transactions(original: Callable[..., ErrorCode]) -> Callable[..., ErrorCode]:
    def check(group: Any, member_id: str, generation: int, instance_id: Any, version: Any) -> ErrorCode:
        if version is None:
            return ErrorCode.NONE
        return original(group, member_id, generation, instance_id, version)

    return check


def _turned_in_one_partition(original: Callable[..., Any]) -> Callable[..., Any]:
    def append_marker(appends: Any, key: Any, marker: Any) -> Any:
        if key.topic == LEDGER and key.partition == 0:
            marker = marker._replace(is_commit=not marker.is_commit)
        return original(appends, key, marker)

    return append_marker


def _forgets_all(original: Callable[..., None]) -> Callable[..., None]:
    def truncate(aborted: Any, offset: int, active_base: int) -> None:
        original(aborted, offset, active_base)
        aborted.clear()

    return truncate


async def _unverified(*_: Any) -> None:
    """Nobody is asked."""


MUTATIONS = (
    Mutation(
        "appends-not-verified",
        "batches of transactions enter the log without a word of the coordinator",
        ("hanging-transaction", "aborted-read"),
        LATE_BATCHES,
        (Patch(ProducedTransaction, "_verify", replaced_by(_unverified)),),
        faces="a batch that comes late hangs, unless its producer's next transaction takes it along",
    ),
    Mutation(
        "guard-not-voided-by-a-marker",
        "a batch that was verified enters the log also after its transaction's marker",
        ("hanging-transaction", "aborted-read"),
        LATE_VERIFICATIONS,
        (Patch(Verifications, "void", replaced_by(lambda verifications, producer_id: None)),),
        faces="a batch that comes late hangs, unless its producer's next transaction takes it along",
    ),
    Mutation(
        "marker-of-one-partition-turned",
        "in one partition a commit is an abort, and an abort a commit",
        ("torn-transaction",),
        CALM,
        (Patch(Appends, "append_marker", _turned_in_one_partition),),
    ),
    Mutation(
        "end-keeps-the-epoch",
        "the end of a transaction of version 2 raises no epoch",
        ("unexpected-answer",),
        CALM,
        (Patch(Transaction, "prepare", _not_raised),),
    ),
    Mutation(
        "late-marker-ends-the-next-transaction",
        "a marker of version 2 is taken although its epoch is that of the producer's open transaction",
        ("precommitted-read", "torn-transaction", "lost-transaction"),
        LATE_MARKERS,
        (Patch(ProducerState, "judge_marker", replaced_by(lambda *_: True)),),
        faces="the next transaction is committed too early, or aborted in one partition or all",
    ),
    Mutation(
        "end-told-before-it-is-committed",
        "the coordinator replies, and has markers written, as soon as it has appended",
        ("lost-transaction",),
        COORDINATORS_ARE_CUT_OFF,
        (Patch(runtime._Positions, "required", replaced_by(lambda positions, about: 0)),),
    ),
    Mutation(
        "markers-not-sent-anew",
        "the next coordinator does not go on with transactions whose outcome stands",
        ("liveness",),
        COORDINATORS_DIE,
        (Patch(TransactionShard, "on_loaded", _without_markers_again),),
    ),
    Mutation(
        "init-forgets-the-open-transaction",
        "a new instance of a producer begins while the transaction of the former one is open",
        ("hanging-transaction", "aborted-read"),
        CALM,
        (Patch(TransactionShard, "_decide", _forgets_the_open_one),),
        faces="what it wrote hangs, unless its producer's next transaction takes it along",
    ),
    Mutation(
        "offsets-of-any-generation-in-transactions",
        "a group accepts offsets in transactions of whatever member and generation",
        ("fenced-commit",),
        PROCESSORS_FREEZE,
        (Patch(ClassicGroup, "check_commit", _not_in_transactions),),
    ),
    Mutation(
        "offsets-of-aborted-transactions-stand",
        "a group's offsets of a transaction stand whatever its marker says",
        ("aborted-offset",),
        PROCESSORS_FREEZE,
        (Patch(GroupOffsets, "replay_marker", _whatever_the_marker),),
    ),
    Mutation(
        "unstable-offsets-are-told",
        "who wants stable offsets alone is told of those that an open transaction is about to replace",
        ("doubled-output",),
        PROCESSORS_ARE_SLOW,
        (Patch(GroupOffsets, "_unstable", replaced_by(lambda offsets, group_id: frozenset())),),
    ),
    Mutation(
        "stable-offset-ignores-open-transactions",
        "everything replicated is stable",
        ("open-transaction-passed",),
        CALM,
        (
            Patch(
                LogProducers,
                "last_stable_offset",
                replaced_by(lambda producers, high_watermark, log_start_offset: high_watermark),
            ),
        ),
    ),
    Mutation(
        "aborted-transactions-not-named",
        "readers of committed records are not told which transactions were aborted",
        ("aborted-read",),
        CALM,
        (Patch(PartitionLog, "aborted_transactions", replaced_by(lambda *_: ())),),
    ),
    Mutation(
        "aborted-transactions-forgotten-by-a-cut",
        "a log that is cut forgets all transactions that were aborted in it",
        ("aborted-read",),
        LEADERS_ARE_CUT_OFF,
        (Patch(AbortedTransactions, "truncate", _forgets_all),),
    ),
)
