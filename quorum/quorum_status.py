"""The leader's view of voters and observers, which DescribeQuorum shows (KIP-595, KIP-836, KIP-853).

The Raft lane, which alone may look at the log, reports the voters. Observers are the nodes that follow the committed
metadata by long poll. The controller server asks, on its event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from partitions.ports import NowMs
from quorum.metadata.wire import UUID_BYTES
from quorum.raft.events import QuorumReport, RaftEvent, ReportQuorum
from quorum.raft.replica_times import ReplicaTimes, ReplicaTimesTable
from quorum.rpc.envelope import RpcError
from quorum.rpc.messages import DescribeQuorumResponse, QuorumReplica

OBSERVER_SESSION_MS = 300_000
"""An observer that was silent for this long is left out."""
REPORT_TIMEOUT_S = 10.0
MAX_OBSERVERS = 10_000
MAX_WAITING = 100
_NO_DIRECTORY = bytes(UUID_BYTES)


class QuorumStatus:
    """The view of one voter, while it leads."""

    def __init__(
        self, node_id: int, voters: Collection[int], post: Callable[[RaftEvent], None], now_ms: NowMs
    ) -> None:
        self._node_id = node_id
        self._voters = frozenset(voters)
        self._post = post
        self._now_ms = now_ms
        self._observers = ReplicaTimesTable()
        self._waiting: dict[int, asyncio.Future[QuorumReport]] = {}
        self._next_id = 0

    def observed(self, node_id: int, end_offset: int, *, epoch: int, committed_end: int) -> None:
        """Notes that a node asks for the metadata from `end_offset` on, while this node leads in `epoch`. An id below
        0 is a tool's, which follows nothing."""
        if node_id >= 0 and node_id not in self._voters:
            self._observers.fetched(epoch, node_id, end_offset, committed_end, self._now_ms())

    def on_report(self, report: QuorumReport) -> None:
        """Takes the Raft lane's answer."""
        waiting = self._waiting.pop(report.request_id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(report)

    async def describe(self, directories: Mapping[int, bytes]) -> DescribeQuorumResponse:
        """Asks the Raft lane; `directories` are the known directory ids by voter.

        Raises RpcError: NOT_CONTROLLER, THROTTLING_QUOTA_EXCEEDED, REQUEST_TIMED_OUT.
        """
        if len(self._waiting) >= MAX_WAITING:
            raise RpcError("THROTTLING_QUOTA_EXCEEDED", f"{MAX_WAITING} others are asking already; try again")
        self._next_id += 1
        request_id = self._next_id
        waiting = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        try:
            self._post(ReportQuorum(request_id))
            async with asyncio.timeout(REPORT_TIMEOUT_S):
                report = await waiting
        except TimeoutError:
            raise RpcError(
                "REQUEST_TIMED_OUT", f"the Raft lane did not answer in {REPORT_TIMEOUT_S:g} s"
            ) from None
        finally:
            self._waiting.pop(request_id, None)
        if not report.leads:
            raise RpcError("NOT_CONTROLLER", f"node {self._node_id} does not lead the quorum")
        return self._response(report, directories)

    def _response(self, report: QuorumReport, directories: Mapping[int, bytes]) -> DescribeQuorumResponse:
        now_ms = self._now_ms()
        voters = [_replica(times, directories) for times in report.followers]
        # As in Kafka: the leader does not fetch, and is always caught up with itself.
        own = ReplicaTimes(self._node_id, report.log_end_offset, last_caught_up_ms=now_ms)
        voters.append(_replica(own, directories))
        observers = self._observers.heard_since(report.epoch, now_ms - OBSERVER_SESSION_MS)
        return DescribeQuorumResponse(
            leader_id=self._node_id,
            leader_epoch=report.epoch,
            high_watermark=report.high_watermark,
            voters=tuple(sorted(voters, key=lambda voter: voter.replica_id)),
            observers=tuple(_replica(times, {}) for times in observers[:MAX_OBSERVERS]),
        )


def _replica(times: ReplicaTimes, directories: Mapping[int, bytes]) -> QuorumReplica:
    return QuorumReplica(
        times.replica_id,
        directories.get(times.replica_id, _NO_DIRECTORY),
        times.log_end_offset,
        times.last_fetch_ms,
        times.last_caught_up_ms,
    )
