"""Answers to overlapping fetches may come late, out of order or never: the copy is still the original.

The leader's log grows and is elected anew, with and without the follower's newest records; partitions are
removed and added again in between; a request of each lane may be under way at a time, in a fetch session that
the leader may forget. What the copy once has of its leader's log it keeps.
"""

from __future__ import annotations

from itertools import takewhile

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fetcher.fetch_states import FetchStates
from fetcher.leader_endpoint import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionKey,
)
from fetcher.replication import Replication
from fetcher.settings import FetcherSettings
from partitions.log.errors import OffsetOutOfRange
from partitions.reads import read
from tests.support.examples import examples
from tests.support.fetch_world import A, B, FollowerMemory, Listened, followed
from tests.support.memory_log import MemoryLog, MemoryRead

KEYS = (A, B)


class Session:
    """The leader's half of a fetch session, as plainly as can be: it answers for everything each time."""

    def __init__(self) -> None:
        self.id = 0
        self.epoch = 0
        self.known: dict[PartitionKey, FetchPartition] = {}
        self.told: dict[PartitionKey, FetchedPartition] = {}

    def take(self, request: FetchRequest) -> str | None:
        """What the request changes; the error if it does not fit."""
        if request.session_epoch == 0:
            self.id, self.epoch, self.known, self.told = self.id + 1, 1, {}, {}
        elif request.session_id != self.id:
            return "FETCH_SESSION_ID_NOT_FOUND"
        elif request.session_epoch != self.epoch:
            return "INVALID_FETCH_SESSION_EPOCH"
        else:
            self.epoch += 1
        self.known.update((asked.key, asked) for asked in request.partitions)
        for key, topic_id in request.forgotten:
            if key in self.known and self.known[key].topic_id == topic_id:
                del self.known[key]
                self.told.pop(key, None)
        return None

    def news(self, answer: FetchedPartition) -> bool:
        """Whether an incremental answer has to name it."""
        told, self.told[answer.key] = self.told.get(answer.key), answer
        return told != answer or bool(answer.records or answer.error or answer.diverging_epoch)


class Copying:
    """A leader's logs, and the follower that copies them."""

    def __init__(self) -> None:
        self.leader = {key: MemoryLog() for key in KEYS}
        self.follower = {key: FollowerMemory() for key in KEYS}
        self.epoch = dict.fromkeys(KEYS, 0)
        self.states = FetchStates(FetcherSettings(), lambda: 0.5)
        self.replication = Replication(self.states, Listened())
        self.under_way: list[FetchRequest] = []
        self.answered: list[tuple[FetchRequest, FetchResponse]] = []
        self.now_ms = 0
        self.produced = 0
        self.session = Session()
        for key in KEYS:
            self.follow(key, 0)

    def follow(self, key: tuple[str, int], choice: int) -> None:
        self.states.add(followed(key, self.follower[key], leader_epoch=self.epoch[key]))

    def produce(self, key: tuple[str, int], choice: int) -> None:
        for _ in range(1 + choice % 3):
            self.produced += 1
            self.leader[key].append_as_leader(f"v{self.produced}".encode(), leader_epoch=self.epoch[key])

    def elect(self, key: tuple[str, int], choice: int) -> None:
        """Another leader: it has the same records, or fewer; the follower hears of it at once or later."""
        self.epoch[key] += 1
        log = self.leader[key]
        log.truncate_to(max(0, log.log_end_offset - choice % 4))
        log.assign_epoch_start(self.epoch[key])
        if choice % 2:
            self.follow(key, 0)

    def remove(self, key: tuple[str, int], choice: int) -> None:
        self.states.remove(key)

    def send(self, key: tuple[str, int], choice: int) -> None:
        lane = choice % 2
        if all(request.lane != lane for request in self.waited_for()):
            request = self.states.build_request(self.now_ms, lane)
            if request is not None:
                self.under_way.append(request)

    def waited_for(self) -> list[FetchRequest]:
        return [*self.under_way, *(request for request, _ in self.answered)]

    def serve(self, key: tuple[str, int], choice: int) -> None:
        if self.under_way:
            request = self.under_way.pop(choice % len(self.under_way))
            self.answered.append((request, self._answer(request)))

    def _answer(self, request: FetchRequest) -> FetchResponse:
        if request.session_epoch < 0:
            return FetchResponse([self._serve(asked) for asked in request.partitions])
        error = self.session.take(request)
        if error is not None:
            return FetchResponse((), error)
        answers = [self._serve(asked) for asked in self.session.known.values()]
        told = [answer for answer in answers if self.session.news(answer) or request.is_full]
        return FetchResponse(told, session_id=self.session.id)

    def forget_session(self, key: tuple[str, int], choice: int) -> None:
        self.session.id += 1

    def _serve(self, asked: FetchPartition) -> FetchedPartition:
        epoch = self.epoch[asked.key]
        if asked.current_leader_epoch != epoch:
            return FetchedPartition(asked.key, "FENCED_LEADER_EPOCH")
        log = self.leader[asked.key]
        try:
            answer = read(
                log,
                fetch_offset=asked.fetch_offset,
                last_fetched_epoch=None if asked.last_fetched_epoch == -1 else asked.last_fetched_epoch,
                up_to_offset=log.log_end_offset,
                high_watermark=0,
                last_stable_offset=0,
                max_bytes=5,
                min_one_batch=True,
            )
        except OffsetOutOfRange:
            return FetchedPartition(asked.key, "OFFSET_OUT_OF_RANGE")
        assert answer.records is None or isinstance(answer.records, MemoryRead)
        return FetchedPartition(
            asked.key,
            None,
            log.log_end_offset,
            0,
            answer.diverging_epoch,
            answer.records.encode() if answer.records else b"",
        )

    def deliver(self, key: tuple[str, int], choice: int) -> None:
        if self.answered:
            request, response = self.answered.pop(choice % len(self.answered))
            if response.error is not None:
                self.states.release(request, response.error)
                return
            before = {key: self.agreed(key) for key in KEYS}
            self.replication.apply_fetch(request, response, self.now_ms)
            for key in KEYS:
                assert self.agreed(key) >= before[key], "the leader was told, and may have committed it"

    def agreed(self, key: tuple[str, int]) -> int:
        """How many records the copy has as the leader has them."""
        pairs = zip(
            self.follower[key].log.values().values(), self.leader[key].values().values(), strict=False
        )
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    def lose(self, key: tuple[str, int], choice: int) -> None:
        if self.answered:
            self.states.release(self.answered.pop()[0])

    def wait(self, key: tuple[str, int], choice: int) -> None:
        self.now_ms += 1_000


MESSAGES = ("send", "serve", "deliver")
ACTIONS = ("produce", *MESSAGES, *MESSAGES, "elect", "remove", "follow", "lose", "wait", "forget_session")


LATE_CUT = """produce 0, send 0, serve 0, deliver 0, elect 1, send 1, send 0, serve 0, serve 0, deliver 1, produce 0,
send 0, serve 0, deliver 1, deliver 0"""
"""Both lanes ask about a record that the new leader lacks; the one is answered when another has taken its place."""


@settings(max_examples=examples(150), deadline=None)
@example([(action, A, int(choice)) for action, choice in map(str.split, LATE_CUT.split(","))])
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.sampled_from(KEYS), st.integers(0, 11)), max_size=80))
def test_the_copy_is_the_original(steps: list[tuple[str, tuple[str, int], int]]) -> None:
    copying = Copying()
    for action, key, choice in steps:
        getattr(copying, action)(key, choice)
        for log in copying.follower.values():
            offsets = list(log.log.values())
            assert offsets == list(range(len(offsets))), "a hole or a repetition"
    while copying.answered:
        copying.deliver(A, 0)
    while copying.under_way:
        copying.states.release(copying.under_way.pop())
    for key in KEYS:
        copying.remove(key, 0)
        copying.follow(key, 0)
    for round_ in range(2 * (4 + copying.produced + 2 * max(copying.epoch.values()))):
        copying.wait(A, 0)
        copying.send(A, round_)
        copying.serve(A, 0)
        copying.deliver(A, 0)
    for key in KEYS:
        assert copying.follower[key].log.values() == copying.leader[key].values()
        assert copying.follower[key].high_watermark == copying.leader[key].log_end_offset
