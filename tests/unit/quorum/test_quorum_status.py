"""DescribeQuorum at the controller: voters from the Raft lane, observers from the long polls."""

from __future__ import annotations

import asyncio

import pytest

from quorum.quorum_status import MAX_WAITING, OBSERVER_SESSION_MS, QuorumStatus
from quorum.raft.events import QuorumReport, RaftEvent, ReportQuorum
from quorum.raft.replica_times import ReplicaTimes
from quorum.rpc.envelope import RpcError
from quorum.rpc.messages import DescribeQuorumResponse, QuorumReplica

UNKNOWN_DIRECTORY = bytes(16)


class Lane:
    """Keeps what it is asked; the test answers."""

    def __init__(self) -> None:
        self.asked: list[RaftEvent] = []
        self.now_ms = 1_000_000
        self.status = QuorumStatus(1, (1, 2, 3), self.asked.append, lambda: self.now_ms)

    async def describe(self, *followers: ReplicaTimes, leads: bool = True) -> DescribeQuorumResponse:
        answer = asyncio.ensure_future(self.status.describe({1: b"1" * 16, 2: b"2" * 16}))
        await asyncio.sleep(0)
        asked = self.asked[-1]
        assert isinstance(asked, ReportQuorum)
        self.status.on_report(QuorumReport(asked.request_id, leads, 7, 50, 52, followers))
        return await answer


async def test_the_leader_and_its_followers() -> None:
    lane = Lane()
    described = await lane.describe(ReplicaTimes(2, 52, 990, 980), ReplicaTimes(3))
    assert (described.leader_id, described.leader_epoch, described.high_watermark) == (1, 7, 50)
    assert described.voters == (
        QuorumReplica(1, b"1" * 16, 52, -1, lane.now_ms),
        QuorumReplica(2, b"2" * 16, 52, 990, 980),
        QuorumReplica(3, UNKNOWN_DIRECTORY, -1, -1, -1),
    )
    assert described.observers == ()


async def test_observers_are_brokers_that_are_no_voters() -> None:
    lane = Lane()
    for node_id, end in ((9, 52), (3, 52), (8, 10)):
        lane.status.observed(node_id, end, epoch=7, committed_end=52)
    described = await lane.describe()
    assert described.observers == (
        QuorumReplica(8, UNKNOWN_DIRECTORY, 10, 1_000_000, -1),
        QuorumReplica(9, UNKNOWN_DIRECTORY, 52, 1_000_000, 1_000_000),
    )
    lane.now_ms += OBSERVER_SESSION_MS + 1
    lane.status.observed(9, 53, epoch=7, committed_end=53)
    assert [observer.replica_id for observer in (await lane.describe()).observers] == [9]


async def test_who_does_not_lead_says_so() -> None:
    with pytest.raises(RpcError) as refused:
        await Lane().describe(leads=False)
    assert refused.value.code == "NOT_CONTROLLER"


async def test_only_so_many_may_ask_at_once() -> None:
    lane = Lane()
    waiting = [asyncio.ensure_future(lane.status.describe({})) for _ in range(MAX_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(RpcError) as refused:
        await lane.status.describe({})
    assert refused.value.code == "THROTTLING_QUOTA_EXCEEDED"
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert (await lane.describe()).leader_id == 1


async def test_an_answer_that_nobody_waits_for_is_nothing() -> None:
    lane = Lane()
    lane.status.on_report(QuorumReport(5, leads=True))
    assert (await lane.describe()).leader_id == 1
