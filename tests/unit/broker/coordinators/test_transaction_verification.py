"""Questions to transaction coordinators: what goes together, what is asked again, and what is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from fetcher.leader_endpoint import LeaderUnavailable
from kraft.broker.coordinators import transaction_verification
from kraft.broker.coordinators.transaction_verification import TransactionVerifier, as_verified
from kraft.coordinator.shard import ProducerIdAndEpoch
from kraft.coordinator.transactions.requests import AddPartitions
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from partitions.topic_partition import TopicPartition

ME = 1
A, B = ProducerIdAndEpoch(7, 0), ProducerIdAndEpoch(8, 0)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Peer:
    """A coordinator's broker, which answers when it may."""

    def __init__(self) -> None:
        self.requests: list[AddPartitionsToTxnRequest] = []
        self.versions: set[int] = set()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.code = ErrorCode.NONE
        self.codes: dict[tuple[str, int], ErrorCode] = {}
        self.is_gone = False
        self.leaves_out = False
        self.whole = ErrorCode.NONE

    async def request(self, body: AddPartitionsToTxnRequest, version: int, *, timeout_s: float) -> Any:
        self.requests.append(body)
        self.versions.add(version)
        await self.may_answer.wait()
        if self.is_gone:
            raise LeaderUnavailable("gone")
        if self.whole or self.leaves_out:
            return AddPartitionsToTxnResponse(error_code=self.whole, results_by_transaction=[])
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=one.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=found.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(
                                    partition_index=number,
                                    partition_error_code=self.codes.get(
                                        (one.transactional_id, number), self.code
                                    ),
                                )
                                for number in found.partitions
                            ],
                        )
                        for found in one.topics
                    ],
                )
                for one in body.transactions
            ]
        )

    def close(self) -> None: ...

    def asked(self) -> list[list[tuple[str, int, bool, list[tuple[str, list[int]]]]]]:
        return [
            [
                (
                    one.transactional_id,
                    one.producer_id,
                    one.verify_only,
                    [(found.name, found.partitions) for found in one.topics],
                )
                for one in body.transactions
            ]
            for body in self.requests
        ]


class Coordinators:
    """Where transactions are coordinated, and the shard here."""

    def __init__(self) -> None:
        self.leader: int | None = 2
        self.replies: list[Any] = []
        self.requests: list[AddPartitions] = []

    def leader_of(self, transactional_id: str) -> int | None:
        return 3 if transactional_id == "elsewhere" else self.leader

    def submit(self, transactional_id: str, request: AddPartitions) -> asyncio.Future[Any]:
        self.requests.append(request)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        reply = self.replies.pop(0) if self.replies else ErrorCode.NONE
        future.set_result(dict.fromkeys(request.partitions, reply))
        return future


class World:
    def __init__(self, *, backoff_ms: int = 1, max_ms: int = 1000) -> None:
        self.coordinators = Coordinators()
        self.peers: dict[int, Peer] = {2: Peer(), 3: Peer()}
        self.verifier = TransactionVerifier(
            ME,
            self.coordinators,
            lambda broker_id: self.peers[broker_id],  # type: ignore[arg-type,return-value]
            asyncio.get_running_loop(),
            pytest.fail,
            retry_backoff_ms=backoff_ms,
            retry_max_ms=max_ms,
        )

    @property
    def peer(self) -> Peer:
        return self.peers[2]

    def verify(
        self,
        partition: TopicPartition = T0,
        transactional_id: str = "a",
        producer: ProducerIdAndEpoch = A,
        *,
        adds: bool = False,
        timeout_s: float = 60.0,
    ) -> Coroutine[Any, Any, ErrorCode]:
        return self.verifier.verify(transactional_id, producer, partition, adds=adds, timeout_s=timeout_s)


async def begun(*verifications: Coroutine[Any, Any, ErrorCode]) -> list[asyncio.Task[ErrorCode]]:
    tasks = [asyncio.ensure_future(one) for one in verifications]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


async def test_what_comes_up_while_a_request_is_on_its_way_goes_together() -> None:
    world = World()
    world.peer.may_answer.clear()
    tasks = await begun(world.verify())
    tasks += await begun(world.verify(T1), world.verify(T1, "b", B), world.verify(), world.verify(T1))
    assert len(world.peer.requests) == 1, "one at a time"
    world.peer.codes = {("b", 1): ErrorCode.TRANSACTION_ABORTABLE}
    world.peer.may_answer.set()
    none = ErrorCode.NONE
    assert await asyncio.gather(*tasks) == [none, none, ErrorCode.TRANSACTION_ABORTABLE, none, none]
    assert world.peer.asked() == [
        [("a", 7, True, [("t", [0])])],
        [("a", 7, True, [("t", [0, 1])]), ("b", 8, True, [("t", [1])])],
    ]
    assert world.peer.versions == {5}


async def test_a_request_names_a_transactional_id_once() -> None:
    world = World()
    world.peer.may_answer.clear()
    newer = ProducerIdAndEpoch(7, 1)
    tasks = await begun(world.verify(T0, "x"))
    tasks += await begun(world.verify(), world.verify(T0, "a", newer, adds=True), world.verify(T1))
    world.peer.may_answer.set()
    assert set(await asyncio.gather(*tasks)) == {ErrorCode.NONE}
    assert world.peer.asked()[1:] == [[("a", 7, True, [("t", [0, 1])])], [("a", 7, False, [("t", [0])])]]


async def test_a_coordinator_that_does_not_answer_holds_up_no_other() -> None:
    world = World()
    world.peer.may_answer.clear()
    (waiting,) = await begun(world.verify())
    assert await world.verify(T0, "elsewhere") is ErrorCode.NONE
    assert not waiting.done()
    await world.verifier.close()
    assert await waiting is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_the_coordinator_here_is_asked_without_a_request() -> None:
    world = World()
    world.coordinators.leader = ME
    world.coordinators.replies = [ErrorCode.PRODUCER_FENCED]
    assert await world.verify() is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await world.verify(adds=True) is ErrorCode.NONE
    one = frozenset({T0})
    assert world.coordinators.requests == [
        AddPartitions("a", A, one, verify_only=True, transaction_version=0),
        AddPartitions("a", A, one, verify_only=False, transaction_version=2),
    ]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    ],
)
async def test_what_passes_is_asked_again_for_a_while(code: ErrorCode) -> None:
    world = World()
    world.coordinators.leader = ME
    world.coordinators.replies = [code, code]
    assert await world.verify() is ErrorCode.NONE
    assert len(world.coordinators.requests) == 3
    impatient = World(backoff_ms=1, max_ms=0)
    impatient.coordinators.leader = ME
    impatient.coordinators.replies = [code]
    assert await impatient.verify() is code


async def test_answers_that_cannot_be_had() -> None:
    world = World()
    world.coordinators.leader = None
    assert await world.verify() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.coordinators.leader = 2
    world.peer.whole = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert await world.verify() is ErrorCode.INVALID_TXN_STATE
    world.peer.whole, world.peer.leaves_out = ErrorCode.NONE, True
    assert await world.verify() is ErrorCode.UNKNOWN_SERVER_ERROR
    world.peer.is_gone = True
    assert await world.verify() is ErrorCode.NETWORK_EXCEPTION
    world.peer.is_gone = world.peer.leaves_out = False
    assert await world.verify() is ErrorCode.NONE, "the next request goes out again"


async def test_a_client_waits_no_longer_than_it_said_and_its_question_is_withdrawn() -> None:
    world = World()
    world.peer.may_answer.clear()
    (first,) = await begun(world.verify())
    assert await world.verify(T1, timeout_s=0.0) is ErrorCode.NETWORK_EXCEPTION
    world.peer.may_answer.set()
    assert await first is ErrorCode.NONE
    assert len(world.peer.requests) == 1


async def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_verification, "WAITING_MAX", 2)
    monkeypatch.setattr(transaction_verification, "PARTITIONS_PER_REQUEST", 1)
    world = World()
    world.peer.may_answer.clear()
    tasks = await begun(world.verify(), world.verify(T0, "b", B))
    assert await world.verify(T1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.peer.may_answer.set()
    assert await asyncio.gather(*tasks) == [ErrorCode.NONE] * 2
    assert await world.verify(T1) is ErrorCode.NONE
    assert [len(one) for one in world.peer.asked()] == [1, 1, 1]


def test_what_is_verified_of_a_coordinators_word() -> None:
    changed = {code: as_verified(code) for code in ErrorCode if as_verified(code) is not code}
    assert changed == {
        ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorCode.INVALID_TXN_STATE,
    }
