"""The fetching of simulated consumers: all partitions of one broker by one Fetch, with their positions kept here.

A consumer that names a rack goes where leaders send it (KIP-392), and comes back to the leader when that fails. The
tailing consumers, topic churn and the final phase use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kraft.chaos.history import Value
from kraft.chaos.workload.base import Workload, unjudged
from kraft.chaos.workload.client import REQUEST_TIMEOUT_S, CallFailedError, Client, PartitionName
from kraft.chaos.workload.read_session import Key, ReadSession, by_topic
from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData
from kraft.protocol.schemas.offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from partitions.records.batch import CorruptBatchError

FETCH_VERSION, LIST_OFFSETS_VERSION = 16, 9
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
FETCH_MAX_BYTES = 256 * 1024
PARTITION_MAX_BYTES = 64 * 1024
LOST_AFTER_S = 4.0
"""A position that is out of range for this long will not come into range again."""
NEARER_FOR_S = 5.0
"""How long the client reads from a replica before it asks the leader again."""
NOBODY = -1
SENT_NEARER = "consumer sent to a replica of its rack"
BEHIND_THE_END = "consumer behind the end"
OUT_OF_RANGE_NEARER = "offset out of range at a follower"


@dataclass(slots=True, eq=False)
class Position:
    """A consumer's position in one partition."""

    name: PartitionName
    topic_id: bytes
    offset: int = 0
    high_watermark: int = -1
    sought: bool = True
    """Whether the next poll begins with a deliberate seek."""
    last_stable_offset: int = -1
    kept: list[tuple[int, Value]] | None = None
    """Committed records that were read, if somebody wants them, who takes them away."""
    busy: bool = False
    """A Fetch for it is under way."""
    out_of_range_since_s: float | None = None
    nearer: int = NOBODY
    """The follower that the leader has named; the client reads from it until `nearer_until_s`."""
    nearer_until_s: float = 0.0

    @property
    def is_at_end(self) -> bool:
        """Whether the last Fetch left nothing to read below the high watermark."""
        return 0 <= self.high_watermark <= self.offset


class Reader:
    """Fetches for one workload, and enters its reads into the history."""

    def __init__(
        self, workload: Workload, client: Client, *, final: bool = False, committed: bool = False
    ) -> None:
        """`committed`: it reads with isolation.level=read_committed, and enters what it reads with transactions."""
        self.is_committed = committed
        self._workload = workload
        self._client = client
        self._final = final
        self.sends_epochs = client.rng.random() < 0.5
        """Whether requests name this consumer's leader epoch (KIP-320)."""
        self._rack = workload.spec.rack
        self._sessions: dict[int, ReadSession] | None = {} if workload.spec.fetch_sessions else None
        """Sessions by broker, if it keeps any."""

    def target(self, position: Position) -> int | None:
        """The broker to fetch from: the partition's leader, or the follower that it has named; None if unknown."""
        leader = self._client.leader(position.name)
        if position.nearer != NOBODY:
            if self._workload.around.now_s < position.nearer_until_s:
                return position.nearer
            position.nearer = NOBODY
        return None if leader is None else leader.broker

    async def fetch(self, broker: int, positions: Sequence[Position], max_wait_ms: int) -> int:
        """Sends one Fetch of idle partitions to a broker; returns how many of them moved, -1 if it failed."""
        for position in positions:
            position.busy = True
        try:
            return await self._fetch(broker, positions, max_wait_ms)
        except CallFailedError:
            for position in positions:
                self._forget(position, broker)
            return -1
        finally:
            for position in positions:
                position.busy = False

    async def _fetch(self, broker: int, positions: Sequence[Position], max_wait_ms: int) -> int:
        began_s = self._workload.around.now_s
        session = None if self._sessions is None else self._sessions.setdefault(broker, ReadSession())
        request = self._request(positions, max_wait_ms, session)
        is_incremental = session is not None and not session.is_full
        timeout_s = REQUEST_TIMEOUT_S + max_wait_ms / 1000
        try:
            answer = await self._client.call(broker, request, FETCH_VERSION, FetchResponse, timeout_s)
        except CallFailedError:
            if session is not None:
                session.lost()
            raise
        if session is not None and not session.answered(answer):
            return 0  # it is asked anew, with everything
        moved, failed = self._take(broker, positions, answer, began_s, is_incremental=is_incremental)
        for position, code in failed:
            await self._fail(broker, position, code)
        return -1 if failed and not moved else moved

    def _request(
        self, positions: Sequence[Position], max_wait_ms: int, session: ReadSession | None
    ) -> FetchRequest:
        wanted: dict[Key, FetchPartition] = {}
        for position in positions:
            leader = self._client.leader(position.name)
            wanted[position.topic_id, position.name[1]] = FetchPartition(
                partition=position.name[1],
                current_leader_epoch=leader.epoch if leader and self.sends_epochs else -1,
                fetch_offset=position.offset,
                partition_max_bytes=PARTITION_MAX_BYTES,
            )
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=FETCH_MAX_BYTES,
            isolation_level=self._isolation_level,
            rack_id=self._rack,
        )
        if session is None:
            request.topics = by_topic((topic_id, one) for (topic_id, _), one in wanted.items())
        else:
            session.name(request, wanted)
        return request

    def _take(
        self,
        broker: int,
        positions: Sequence[Position],
        answer: FetchResponse,
        began_s: float,
        *,
        is_incremental: bool,
    ) -> tuple[int, list[tuple[Position, ErrorCode]]]:
        """Moves positions on; returns how many moved, and those answered with an error.

        An incremental answer leaves out partitions without news.
        """
        asked = {(position.topic_id, position.name[1]): position for position in positions}
        moved, failed = 0, list[tuple[Position, ErrorCode]]()
        for topic in answer.responses:
            for data in topic.partitions:
                position = asked.pop((topic.topic_id, data.partition_index), None)
                if position is None:
                    self._client.surprise(broker, f"Fetch was answered for {topic.topic_id.hex()}, unasked")
                elif data.error_code:
                    failed.append((position, ErrorCode.of(data.error_code)))
                else:
                    moved += self._advance(broker, position, data, began_s)
        if (asked and not is_incremental) or answer.error_code:
            missing = [position.name for position in asked.values()]
            self._client.surprise(
                broker, f"Fetch was answered with error {answer.error_code}, without {missing}"
            )
        elif not (moved or failed or self._final or self.is_committed):
            self._record(positions[0], began_s, positions[0].offset, ())
        return moved, failed

    def _advance(self, broker: int, position: Position, data: PartitionData, began_s: float) -> int:
        """Moves a position behind the records read; returns 1 if it moved."""
        position.high_watermark = data.high_watermark
        position.last_stable_offset = data.last_stable_offset
        position.out_of_range_since_s = None
        if data.preferred_read_replica != NOBODY:
            self._go_nearer(broker, position, data.preferred_read_replica)
        if not data.records:
            if self._final and position.is_at_end and not self.is_committed:  # an empty log is evidence, too
                self._record(position, began_s, position.offset, ())
            return 0
        assert isinstance(data.records, memoryview)
        markers: list[int] = []
        try:
            aborted = data.aborted_transactions or () if self.is_committed else ()
            records, next_offset = self._workload.around.decoder.read(
                data.records, position.offset, aborted, markers
            )
        except CorruptBatchError as error:
            self._workload.around.verdicts.violated(
                "corrupt-batch-served",
                f"node {broker} sent {self._workload.process_name} damaged bytes of {position.name} at"
                f" {position.offset}: {error}",
            )
            return 0
        if next_offset == position.offset:
            return 0
        self._judge_end(broker, position, data, next_offset)
        before, position.offset = position.offset, next_offset
        self._record(position, began_s, before, records, markers)
        return 1

    def _judge_end(self, broker: int, position: Position, data: PartitionData, next_offset: int) -> None:
        """A broker gives nothing beyond what it says is committed, or stable."""
        given = (
            f"node {broker} gave {self._workload.process_name} records of {position.name} up to {next_offset}"
        )
        violated = self._workload.around.verdicts.violated
        if next_offset > data.high_watermark:
            violated("high-watermark-bounded", f"{given} and says that {data.high_watermark} is committed")
        if self.is_committed and next_offset > data.last_stable_offset:
            violated(
                "last-stable-offset-bounded", f"{given} and says that {data.last_stable_offset} is stable"
            )

    def _record(
        self,
        position: Position,
        began_s: float,
        before: int,
        records: Sequence[tuple[int, Value]],
        markers: Sequence[int] = (),
    ) -> None:
        if self.is_committed:
            self._record_committed(position, before, records)
            return
        self._workload.record_poll(
            position.name,
            position.topic_id,
            began_s,
            before,
            records,
            position.offset,
            sought=position.sought,
            final=self._final,
            markers=markers,
        )
        position.sought = False

    def _record_committed(
        self, position: Position, before: int, records: Sequence[tuple[int, Value]]
    ) -> None:
        workload, key = self._workload, (position.topic_id, position.name[1])
        workload.begun += 1
        workload.acknowledged += bool(records)
        history = workload.around.transactions.history
        history.names[key[0]] = position.name[0]
        history.polled(
            workload.process_name,
            key,
            workload.around.now_s,
            before,
            records,
            position.offset,
            final=self._final,
        )
        if position.kept is not None:
            position.kept += records

    @property
    def _isolation_level(self) -> int:
        return READ_COMMITTED if self.is_committed else READ_UNCOMMITTED

    async def _fail(self, broker: int, position: Position, code: ErrorCode) -> None:
        """Handles a partition's error, which must be a transient one."""
        is_nearer = position.nearer == broker
        self._forget(position, broker)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and is_nearer:
            # A follower may have fewer or more records than its leader, which decides about the offset.
            self._workload.around.verdicts.coverage[OUT_OF_RANGE_NEARER] += 1
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._find_range(broker, position)
        elif not code.retriable or code is ErrorCode.CORRUPT_MESSAGE:
            self._client.surprise(
                broker, f"Fetch of {position.name} at {position.offset} failed: {code.name}"
            )

    def _forget(self, position: Position, broker: int) -> None:
        """Leaves a broker that does not serve the partition, or does not answer."""
        if position.nearer == broker:
            position.nearer = NOBODY
        else:
            self._client.forget_leader(position.name, broker)

    def _go_nearer(self, broker: int, position: Position, replica: int) -> None:
        """Goes to the replica that the leader names, in this consumer's rack."""
        spec = self._workload.around.cluster.specs.get(replica)
        if spec is None or not self._rack or spec.rack != self._rack or replica == broker:
            self._client.surprise(
                broker, f"Fetch of {position.name} from rack {self._rack!r} was sent to broker {replica}"
            )
            return
        self._workload.around.verdicts.coverage[SENT_NEARER] += 1
        position.nearer = replica
        position.nearer_until_s = self._workload.around.now_s + NEARER_FOR_S

    async def _find_range(self, broker: int, position: Position) -> None:
        """Goes to the log's start if that has passed the position.

        A new leader may not know yet how far the former one had committed, so its end looks too low for a while. If
        that lasts, the records that this consumer has read are gone: it goes on at the end, and the judges decide
        whether that was allowed.
        """
        now_s = self._workload.around.now_s
        if position.out_of_range_since_s is None:
            position.out_of_range_since_s = now_s
        start = await self.offset_of(broker, position, EARLIEST_TIMESTAMP)
        if start is not None and start > position.offset:
            self.seek(position, start)
        elif now_s - position.out_of_range_since_s > LOST_AFTER_S:
            end = await self.offset_of(broker, position, LATEST_TIMESTAMP)
            if end is not None and end < position.offset:
                self._workload.around.verdicts.happened(BEHIND_THE_END, str(position.name))
                self.seek(position, end)

    @staticmethod
    def seek(position: Position, offset: int) -> None:
        """Moves a position by a deliberate seek."""
        position.offset, position.sought, position.out_of_range_since_s = offset, True, None

    async def offset_of(self, broker: int, position: Position, timestamp: int) -> int | None:
        """The log's start or end (one of ListOffsets' timestamps), by that broker; None without an answer."""
        topic, partition = position.name
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(
            isolation_level=self._isolation_level,
            topics=[ListOffsetsTopic(name=topic, partitions=[wanted])],
        )
        listed = unjudged if self.is_committed else self._workload.around.on_list_offsets
        judge = listed((position.topic_id, partition), timestamp, broker)
        try:
            answer = await self._client.call(broker, request, LIST_OFFSETS_VERSION, ListOffsetsResponse)
        except CallFailedError:
            return None
        found = answer.topics[0].partitions[0]
        code = ErrorCode.of(found.error_code)
        if code is ErrorCode.NONE:
            judge(found.offset, found.leader_epoch, found.timestamp)
            return found.offset
        if not code.retriable:
            self._client.surprise(broker, f"ListOffsets of {position.name} failed: {code.name}")
        return None
