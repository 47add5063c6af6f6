"""The runtime of coordinators: hosts the shards of one internal topic that this broker leads.

An election loads the shard: its log is read to the end, in steps, and the high watermark must have reached that end.
Requests of one turn of the loop are decided at once, their records appended together, and each reply leaves when the
high watermark has passed everything that it tells of; reads wait in the same way. Guarantees: nothing uncommitted is
told; leadership and the size of the ISR are looked at before a shard decides, so that a refusal leaves it alone; a
wait that takes too long answers an error and keeps the shard; only an append that fails after the decision drops it,
and it loads anew. What a shard wants done elsewhere is done when its records are committed, however long that takes,
unless its leadership ends or it loads anew, and decides again. While nothing can be appended time stands still for
the shard, and its sessions begin anew then: members that were refused did not fall silent. (KIP-848's coordinator
runtime; DESIGN of shards in `shard.py`.)

The handlers of `kraft.broker` submit requests; `LeadershipEvents` tells of elections. On the event loop; IO is in the
`ShardLog` that the broker hands in.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import structlog

from kraft.coordinator.shard import (
    Decisions,
    Effect,
    Marked,
    Moment,
    ProducerIdAndEpoch,
    Record,
    Replied,
    Shard,
    StoredMarker,
    StoredRecord,
    TransactionMarker,
    Written,
)
from kraft.protocol.errors import ErrorCode
from partitions.errors import PartitionError
from partitions.log.errors import LogError
from partitions.records.builder import RecordTuple, build_batch
from partitions.records.control import ControlType
from partitions.records.markers import build_marker
from partitions.topic_partition import TopicPartition

log = structlog.get_logger(__name__)

Request = TypeVar("Request")
S = TypeVar("S", bound=Shard[Any])

WAITING_MAX: Final = 50_000
"""Requests of one shard that may wait for their replies."""
UNCOMMITTED_MAX: Final = 10_000
"""Appends of one shard that may be uncommitted: the followers do not keep up, and more are refused."""
REPLAY_STEP: Final = 500
"""Records that a loading shard takes in before other work of the loop has its turn: a few milliseconds."""
RETRY_S: Final = 1.0
"""Until what could not be loaded, or appended to, is tried again."""
_RECORD_OVERHEAD_BYTES: Final = 40
_BATCH_OVERHEAD_BYTES: Final = 61


class ShardLog(Protocol):
    """One partition in the leader epoch of one election of this broker."""

    @property
    def max_batch_bytes(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    def refusal(self, *, appends: bool) -> ErrorCode | None:
        """Why nobody may ask its shard now, or append; None if one may. NOT_COORDINATOR: the leadership is over."""

    def append(self, batches: bytes) -> int:
        """Appends with acks=all. Returns the offset behind it. Raises PartitionError or LogError."""

    def when_committed(self, offset: int, timeout_s: float) -> asyncio.Future[bool]:
        """Whether the high watermark came to `offset` in time, and in this leadership."""

    def records(self) -> ShardRecords:
        """What the log holds now."""


class ShardRecords(Protocol):
    """The log's records from its start to the end that it had, chunk by chunk; what is read is read beside the loop."""

    end_offset: int

    def __aiter__(self) -> ShardRecords: ...

    async def __anext__(self) -> Sequence[StoredRecord | StoredMarker]:
        """Raises PartitionError or LogError."""


class Environment(NamedTuple):
    """What a runtime takes from its broker."""

    loop: asyncio.AbstractEventLoop
    wall_ms: Callable[[], int]
    start_task: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
    """Starts a task that the node cannot do without."""

    def now(self) -> Moment:
        return Moment(int(self.loop.time() * 1000), self.wall_ms())


Perform = Callable[[int, int, Any], None]
"""Does what a shard decided on: its partition, the leader epoch of the decision, the effect."""
Precondition = Callable[[ShardLog], Any]
"""Looks at the partition before a shard is asked: what it returns is the reply, unless that is None."""


def _no_effects(number: int, leader_epoch: int, what: Any) -> None:
    raise NotImplementedError(f"nobody does {what!r}")


class Runtime(Generic[Request, S]):
    """The shards of one topic on one broker. (A listener of leadership events.)"""

    def __init__(
        self,
        topic: str,
        make_shard: Callable[[int], S],
        open_log: Callable[[TopicPartition, int], ShardLog],
        environment: Environment,
        *,
        append_timeout_s: float,
        perform: Perform = _no_effects,
    ) -> None:
        """`open_log` is given the partition and the leader epoch of the election. `perform` starts what shards want
        done elsewhere; it does not raise."""
        self.topic = topic
        self._make_shard = make_shard
        self._open_log = open_log
        self._environment = environment
        self._append_timeout_s = append_timeout_s
        self._perform = perform
        self._hosted: dict[int, _Hosted[Request, S]] = {}
        self._one_reads = asyncio.Semaphore(1)

    async def close(self) -> None:
        """Ends all shards; requests that wait are told NOT_COORDINATOR."""
        tasks = [task for number in list(self._hosted) if (task := self._end(number)) is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- elections

    def on_elected(self, partition: TopicPartition, leader_epoch: int) -> None:
        if partition.topic == self.topic:
            shard_log = self._open_log(partition, leader_epoch)
            hosted: _Hosted[Request, S] = _Hosted(
                partition,
                self._make_shard,
                shard_log,
                self._environment,
                self._append_timeout_s,
                self._one_reads,
                leader_epoch,
                self._perform,
            )
            self._hosted[partition.partition] = hosted
            hosted.load()

    def on_resigned(self, partition: TopicPartition, leader_epoch: int) -> None:
        if partition.topic == self.topic:
            self._end(partition.partition)

    def on_deleted(self, partition: TopicPartition, topic_id: bytes) -> None:
        """It has resigned before."""

    def _end(self, number: int) -> asyncio.Task[None] | None:
        hosted = self._hosted.pop(number, None)
        return None if hosted is None else hosted.end()

    # -- requests

    def submit(
        self,
        number: int,
        request: Request,
        *,
        reads: bool = False,
        precondition: Precondition | None = None,
    ) -> asyncio.Future[Any]:
        """Asks the shard of that partition. The future's result is the shard's response, or the ErrorCode that the
        client is to be told: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE. A request that
        `reads` writes nothing, and is answered also where the ISR is too small for appends. The `precondition` is
        asked when all that was decided before is appended, and the records of this request follow at once."""
        hosted = self._hosted.get(number)
        if hosted is None:
            return _settled(self._environment.loop, ErrorCode.NOT_COORDINATOR)
        return hosted.submit(request, reads, precondition)

    def tell(self, number: int, leader_epoch: int, event: Callable[[S, Moment, Decisions], None]) -> None:
        """As `each`, for one shard, and in this leadership only."""
        hosted = self._hosted.get(number)
        if hosted is not None and hosted.leader_epoch == leader_epoch:
            hosted.tell(event)

    def each(self, event: Callable[[S, Moment, Decisions], None]) -> None:
        """Has every loaded shard take in something that happened. Those that are loading, or cannot append, look at
        what there is when they can."""
        for hosted in list(self._hosted.values()):
            hosted.tell(event)

    @property
    def hosted(self) -> tuple[int, ...]:
        """The partitions whose shards are here, loaded or not, ascending."""
        return tuple(sorted(self._hosted))

    def shards(self) -> Iterator[tuple[int, S]]:
        """The loaded ones, to look at."""
        for number in sorted(self._hosted):
            shard = self._hosted[number].shard
            if shard is not None:
                yield number, shard

    @property
    def is_loading(self) -> bool:
        """Whether any shard is."""
        return any(hosted.shard is None for hosted in self._hosted.values())


class _Hosted(Generic[Request, S]):
    """One shard in one leader epoch."""

    def __init__(
        self,
        partition: TopicPartition,
        make_shard: Callable[[int], S],
        shard_log: ShardLog,
        environment: Environment,
        append_timeout_s: float,
        one_reads: asyncio.Semaphore,
        leader_epoch: int,
        perform: Perform,
    ) -> None:
        self._partition = partition
        self.leader_epoch = leader_epoch
        self._perform = perform
        self._make_shard = make_shard
        self._log = shard_log
        self._environment = environment
        self._loop = environment.loop
        self._append_timeout_s = append_timeout_s
        self._one_reads = one_reads
        self.shard: S | None = None
        """None while it is loading, and when it was dropped."""
        self._is_suspended = False
        """Whether time stood still because nothing could be appended."""
        self._was_dropped = False
        self._loaded_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.Handle | None = None
        self._timer_s = 0.0
        """When it is due. (uvloop gives no TimerHandle for what is due already.)"""
        self._last_token = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        """By token."""
        self._turn = Decisions()
        self._units: list[int] = []
        """How many records were written after each decision of this turn."""
        self._flush_is_due = False
        self._positions = _Positions()
        self._due: dict[int, _Due] = {}
        """By the offset that the high watermark has to come to."""

    # -- life

    def load(self, after_s: float = 0.0) -> None:
        self._task = self._environment.start_task(self._load(after_s), f"load-{self._partition}")

    def end(self) -> asyncio.Task[None] | None:
        """The leadership is over."""
        self._forget(ErrorCode.NOT_COORDINATOR)
        if self._task is not None:
            self._task.cancel()
        return self._task

    def _forget(self, code: ErrorCode) -> None:
        """The shard's state is given up; all that wait are told `code`."""
        self.shard = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._turn = Decisions()
        self._units.clear()
        self._positions = _Positions()
        self._due.clear()
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_result(code)

    def _drop(self, reason: Exception) -> None:
        """What was decided could not be appended, or only in part: the state here is not what the log says. One that
        is dropped again soon, as on a full disk, does not have the log read all the time."""
        log.warning("a coordinator's shard is dropped and loads anew", partition=str(self._partition),
                    reason=str(reason))  # fmt: skip
        self._forget(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        is_again = self._was_dropped and self._loop.time() - self._loaded_s < RETRY_S
        self._was_dropped = True
        self.load(RETRY_S if is_again else 0.0)

    async def _load(self, after_s: float) -> None:
        """Until the shard is loaded, or the task is cancelled with the leadership."""
        if after_s:
            await asyncio.sleep(after_s)
        while True:
            shard = self._make_shard(self._partition.partition)
            try:
                began_s = self._loop.time()
                async with self._one_reads:
                    records, end_offset = await self._replay(shard)
                if await self._committed(end_offset):
                    shard.on_replayed()
                    break
            except (PartitionError, LogError) as error:
                log.error("a coordinator's shard could not be loaded; it is tried again", reason=str(error),
                          partition=str(self._partition))  # fmt: skip
            except Exception:  # it would halt this broker, then the one that is elected next, and so on
                log.exception("a coordinator's shard failed to load; it is tried again",
                              partition=str(self._partition))  # fmt: skip
            await asyncio.sleep(RETRY_S)
        self.shard = shard
        self._loaded_s = self._loop.time()
        self._is_suspended = True  # nothing was decided yet: its sessions begin when it can append
        log.info("a coordinator's shard is loaded", partition=str(self._partition), records=records,
                 ms=int((self._loop.time() - began_s) * 1000))  # fmt: skip
        self._on_time()

    async def _replay(self, shard: S) -> tuple[int, int]:
        """Returns how many records there were, and the offset behind them."""
        count = 0
        chunks = self._log.records()
        async for chunk in chunks:
            for start in range(0, len(chunk), REPLAY_STEP):
                for record in chunk[start : start + REPLAY_STEP]:
                    if isinstance(record, StoredMarker):
                        shard.replay_marker(record)
                    else:
                        shard.replay(record)
                await asyncio.sleep(0)
            count += len(chunk)
        return count, chunks.end_offset

    async def _committed(self, end_offset: int) -> bool:
        """Waits until all that was read is; False where the log's leadership is over, which `end` tells."""
        while self._log.high_watermark < end_offset:
            if not await self._log.when_committed(end_offset, self._append_timeout_s):
                if self._log.refusal(appends=False) is not None:
                    return False
                await asyncio.sleep(0)
        return True

    # -- requests, time and events

    def submit(self, request: Request, reads: bool, precondition: Precondition | None) -> asyncio.Future[Any]:
        refusal = self._refusal(appends=not reads)
        if refusal is None and precondition is not None:
            if self._turn.written:
                self._flush()
            refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE if self.shard is None else precondition(self._log)
        if refusal is not None or self.shard is None:
            return _settled(self._loop, refusal)
        self._last_token = token = self._last_token + 1
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting[token] = future
        future.add_done_callback(lambda _: self._waiting.pop(token, None))
        if not self._decide(lambda shard, now, turn: shard.handle(token, request, now, turn)):
            return _settled(self._loop, ErrorCode.UNKNOWN_SERVER_ERROR)
        if precondition is not None and self._turn.written:
            self._flush()
        return future

    def tell(self, event: Callable[[S, Moment, Decisions], None]) -> None:
        if self.shard is None:
            return  # it looks at what there is when it is loaded
        if self._refusal(appends=True) is None:
            self._decide(event)
        elif self.shard is not None:
            self._suspend()

    def _refusal(self, *, appends: bool) -> ErrorCode | None:
        """Why the shard is not asked now. Its suspension begins where nothing can be appended, and ends where it can
        be asked."""
        if self.shard is None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        refusal = self._log.refusal(appends=appends)
        if appends and refusal is not None:
            self._is_suspended = True  # whoever asks in vain did not fall silent
        self._positions.forget_up_to(self._log.high_watermark)  # nobody waits for what is committed at once
        if refusal is None and (
            len(self._waiting) >= WAITING_MAX or (appends and len(self._positions) >= UNCOMMITTED_MAX)
        ):
            refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if refusal is None and appends and self._is_suspended:
            self._is_suspended = False
            if not self._decide(lambda shard, now, turn: shard.on_loaded(now, turn)):
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return refusal

    def _on_time(self) -> None:
        self._timer = None
        if self.shard is None:
            return
        if self._refusal(appends=True) is not None:
            self._suspend()
            return
        self._decide(self._act)

    def _suspend(self) -> None:
        """The shard missed something: it looks at what there is as soon as it can append, though nobody asks it."""
        self._is_suspended = True
        self._arm_at(self._loop.time() + RETRY_S)

    def _act(self, shard: S, now: Moment, turn: Decisions) -> None:
        for action in shard.timers.pop_due(now.monotonic_ms):
            action(now, turn)
            self._units.append(len(turn.written))

    def _decide(self, decide: Callable[[S, Moment, Decisions], None]) -> bool:
        """Has the shard decide. A defect of it costs its state, which is read anew, and not the node: False."""
        assert self.shard is not None, "it is loaded"
        try:
            decide(self.shard, self._environment.now(), self._turn)
        except Exception as error:
            log.exception("a coordinator's shard failed", partition=str(self._partition))
            self._drop(error)
            return False
        self._decided()
        return True

    def _decided(self) -> None:
        """The shard had its say; nothing of it is told before it is appended."""
        turn = self._turn
        if turn.written:
            self._units.append(len(turn.written))
            if not self._flush_is_due:
                self._flush_is_due = True
                self._loop.call_soon(self._flush)
        elif turn.replies or turn.effects:
            self._turn = Decisions()
            self._conclude(turn)
        self._arm()

    def _arm(self) -> None:
        next_ms = None if self.shard is None else self.shard.timers.next_ms
        if next_ms is None or self._is_suspended:
            return
        self._arm_at(next_ms / 1000 + 0.001)  # never a millisecond early

    def _arm_at(self, at_s: float) -> None:
        """Has `_on_time` called at that time of the loop, or before."""
        if self._timer is not None:
            if self._timer_s <= at_s:
                return
            self._timer.cancel()
        self._timer, self._timer_s = self._loop.call_at(at_s, self._on_time), at_s

    # -- appends and replies

    def _flush(self) -> None:
        """Appends what was decided in this turn."""
        self._flush_is_due = False
        turn, self._turn = self._turn, Decisions()
        units, self._units = self._units, []
        if not turn.written:
            return  # the shard was dropped, or its leadership ended
        batches = b"".join(
            _batches(turn.written, units, self._log.max_batch_bytes, self._environment.wall_ms())
        )
        try:
            end_offset = self._log.append(batches)
        except (PartitionError, LogError) as error:
            self._drop(error)
            return
        self._positions.add(end_offset, _abouts(turn.written))
        self._conclude(turn)

    def _conclude(self, turn: Decisions) -> None:
        """What was written in this turn is appended: its replies and effects wait until it is committed."""
        high_watermark = self._log.high_watermark
        for reply in turn.replies:
            offset = self._positions.required(reply.about)
            if offset <= high_watermark:
                self._send(reply)
            else:
                self._due_at(offset).replies.append(reply)
        for effect in turn.effects:
            offset = self._positions.required(effect.about)
            if offset <= high_watermark:
                self._do(effect)
            else:
                self._due_at(offset).effects.append(effect)

    def _due_at(self, offset: int) -> _Due:
        due = self._due.get(offset)
        if due is None:
            due = self._due[offset] = _Due([], [])
            committed = self._log.when_committed(offset, self._append_timeout_s)
            committed.add_done_callback(partial(self._on_committed, offset))
        return due

    def _on_committed(self, offset: int, done: asyncio.Future[bool]) -> None:
        self._positions.forget_up_to(self._log.high_watermark)
        due = self._due.pop(offset, None)
        if due is None:
            return  # the shard was dropped meanwhile
        if not done.cancelled() and done.result():
            for reply in due.replies:
                self._send(reply)
            for effect in due.effects:
                self._do(effect)
            return
        refusal = self._log.refusal(appends=False)
        for reply in due.replies:
            self._send(reply._replace(response=refusal or ErrorCode.COORDINATOR_NOT_AVAILABLE))
        if refusal is None and due.effects:
            self._due_at(offset).effects.extend(due.effects)

    def _do(self, effect: Effect) -> None:
        self._perform(self._partition.partition, self.leader_epoch, effect.what)

    def _send(self, reply: Replied) -> None:
        future = self._waiting.get(reply.token)
        if future is not None and not future.done():  # its client may be gone
            future.set_result(reply.response)


class _Due(NamedTuple):
    replies: list[Replied]
    effects: list[Effect]


class _Positions:
    """Where in the log the newest record about each id ends, as long as that is not committed."""

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}
        self._appended: deque[tuple[int, set[str]]] = deque()

    def __len__(self) -> int:
        """Appends that are not known to be committed."""
        return len(self._appended)

    def add(self, end_offset: int, about: set[str]) -> None:
        self._appended.append((end_offset, about))
        self._newest.update(dict.fromkeys(about, end_offset))

    def required(self, about: str | None) -> int:
        """What the high watermark has to come to before anything is told of this id, or of all."""
        if about is None:
            return self._appended[-1][0] if self._appended else 0
        return self._newest.get(about, 0)

    def forget_up_to(self, high_watermark: int) -> None:
        while self._appended and self._appended[0][0] <= high_watermark:
            end_offset, about = self._appended.popleft()
            for one in about:
                if self._newest.get(one) == end_offset:
                    del self._newest[one]


def _abouts(written: Sequence[Written | Marked]) -> set[str]:
    abouts: set[str] = set()
    for one in written:
        if isinstance(one, Marked):
            abouts |= one.about
        else:
            abouts.add(one.about)
    return abouts


def _batches(
    written: Sequence[Written | Marked], units: Sequence[int], max_bytes: int, wall_ms: int
) -> Iterator[bytes]:
    """As few batches as hold the records in their order; those of one decision share one, if they fit into any. A
    batch is of one producer, and a marker has its own."""
    batch: list[RecordTuple] = []
    batch_bytes = _BATCH_OVERHEAD_BYTES
    producer: ProducerIdAndEpoch | None = None
    start = 0
    for end in units:
        unit, start = written[start:end], end
        wanted_bytes = sum(_size_bytes(one.record) for one in unit if isinstance(one, Written))
        for one in unit:
            of = one.producer if isinstance(one, Written) else None
            size_bytes = _size_bytes(one.record) if isinstance(one, Written) else 0
            fits = batch_bytes + max(wanted_bytes, size_bytes) <= max_bytes
            if batch and (isinstance(one, Marked) or of != producer or not fits):
                yield _batch(batch, producer)
                batch, batch_bytes = [], _BATCH_OVERHEAD_BYTES
            wanted_bytes = 0  # the others go where the first one went, as long as they fit
            if isinstance(one, Marked):
                yield _marker_batch(one.marker, wall_ms)
            else:
                batch.append((wall_ms, one.record.key, one.record.value, ()))
                batch_bytes += size_bytes
                producer = of
    if batch:
        yield _batch(batch, producer)


def _batch(records: Sequence[RecordTuple], producer: ProducerIdAndEpoch | None) -> bytes:
    if producer is None:
        return build_batch(records)
    return build_batch(
        records, producer_id=producer.producer_id, producer_epoch=producer.epoch, is_transactional=True
    )


def _marker_batch(marker: TransactionMarker, wall_ms: int) -> bytes:
    return build_marker(
        marker.producer.producer_id,
        marker.producer.epoch,
        ControlType.COMMIT if marker.is_commit else ControlType.ABORT,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp=wall_ms,
    )


def _size_bytes(record: Record) -> int:
    return _RECORD_OVERHEAD_BYTES + len(record.key) + len(record.value or b"")


def _settled(loop: asyncio.AbstractEventLoop, value: Any) -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = loop.create_future()
    future.set_result(value)
    return future
