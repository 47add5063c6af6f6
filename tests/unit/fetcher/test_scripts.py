"""Plays the stories under scripts/: one follower with logs in memory, and a leader whose answers are given by hand.

The form is that of `tests.support.golden`. A log is written as `value/epoch` for each record; an answer's records
as `first offset:value,value/epoch`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fetcher.fetch_state import FetchPhase, FollowedPartition
from fetcher.fetch_states import CATCH_UP_LANE, SESSION_LANE, FetchStates
from fetcher.leader_endpoint import (
    FetchedPartition,
    FetchRequest,
    FetchResponse,
    LeaderOffsets,
    PartitionKey,
)
from fetcher.replication import LogTruncation, Replication
from fetcher.settings import FetcherSettings
from tests.support.fetch_world import TOPIC_ID, FollowerMemory
from tests.support.golden import check_script, scripts_beside
from tests.support.memory_log import MemoryBatch, MemoryRead


class Story:
    """Every command gives the lines that it caused. It is the listener of its follower."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.now_ms = 0
        self.said: list[str] = []
        self.logs: dict[str, FollowerMemory] = {}
        self.held_back: set[PartitionKey] = set()
        self.states = FetchStates(FetcherSettings(), lambda: 0.5, self)
        self.replication = Replication(self.states, self)
        self.in_flight: list[FetchRequest] = []

    def play(self, line: str) -> list[str]:
        command, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        arguments = [word for word in words if "=" not in word]
        self.said.clear()
        getattr(self, "do_" + command.replace("-", "_"))(arguments, options)
        return list(self.said)

    @staticmethod
    def _key(name: str) -> PartitionKey:
        return name, 0

    # -- ReplicationListener

    def on_truncated(self, truncation: LogTruncation) -> None:
        topic, _ = truncation.key
        below = " BELOW ITS HIGH WATERMARK" if truncation.to_offset < truncation.high_watermark else ""
        self.said.append(f"{topic}: truncates {truncation.from_offset} -> {truncation.to_offset}{below}")

    def on_partition_failed(
        self, key: PartitionKey, leader_epoch: int, code: str, error: Exception | None
    ) -> None:
        self.said.append(f"{key[0]}: stops in epoch {leader_epoch}: {code}")

    def on_retry(
        self, key: PartitionKey, leader_epoch: int, code: str, error: Exception | None, failures: int
    ) -> None:
        self.said.append(f"{key[0]}: backs off: {code}")

    # -- ReplicationThrottle

    def holds_back(self, key: PartitionKey, *, in_sync: bool, now_ms: int) -> bool:
        return key in self.held_back

    def copied(self, key: PartitionKey, size_bytes: int, now_ms: int) -> None:
        """The rate is not this story's."""

    def do_hold_back(self, arguments: list[str], options: dict[str, str]) -> None:
        """hold-back NAME...: the throttle wants these left out of requests."""
        self.held_back.update(map(self._key, arguments))

    def do_let_go(self, arguments: list[str], options: dict[str, str]) -> None:
        """let-go NAME...: their rate is low enough again."""
        self.held_back.difference_update(map(self._key, arguments))

    # -- the follower

    def do_new(self, arguments: list[str], options: dict[str, str]) -> None:
        """new: another follower, without logs."""
        self.begin()

    def do_log(self, arguments: list[str], options: dict[str, str]) -> None:
        """log NAME VALUE/EPOCH... [hw=N]: what the replica has on disk."""
        name, *stored = arguments
        log = self.logs[name] = FollowerMemory()
        for record in stored:
            value, epoch = record.split("/")
            log.log.append_as_leader(value.encode(), leader_epoch=int(epoch))
        log.high_watermark = int(options.get("hw", "0"))

    def do_led(self, arguments: list[str], options: dict[str, str]) -> None:
        """led NAME EPOCH: the replica began to lead in an epoch, and wrote nothing."""
        self.logs[arguments[0]].log.assign_epoch_start(int(arguments[1]))

    def do_follow(self, arguments: list[str], options: dict[str, str]) -> None:
        """follow NAME LEADER EPOCH: the metadata names the leader."""
        name, leader, epoch = arguments[0], int(arguments[1]), int(arguments[2])
        log = self.logs[name]
        if self.states.add(FollowedPartition(self._key(name), TOPIC_ID, leader, epoch, log)):
            log.epoch = epoch
        else:
            self.said.append(f"{name}: goes on as before")

    def do_unfollow(self, arguments: list[str], options: dict[str, str]) -> None:
        """unfollow NAME: the replica is somebody else's now."""
        self.states.remove(self._key(arguments[0]))

    def do_tick(self, arguments: list[str], options: dict[str, str]) -> None:
        self.now_ms += int(arguments[0])

    def do_ask(self, arguments: list[str], options: dict[str, str]) -> None:
        """ask: the next fetch, which stays in flight."""
        request = self.states.build_request(self.now_ms, 0) or self.states.build_request(self.now_ms, 1)
        if request is None:
            self.said.append("nothing to ask for")
            return
        self.in_flight.append(request)
        for asked in request.partitions:
            self.said.append(
                f"{asked.key[0]}: asks in epoch {asked.current_leader_epoch} from {asked.fetch_offset},"
                f" last epoch {asked.last_fetched_epoch}, log start {asked.log_start_offset}"
            )

    def do_request(self, arguments: list[str], options: dict[str, str]) -> None:
        """request session | catch-up: that lane's next fetch, as a fetch session sees it; it stays in flight."""
        lane = {"session": SESSION_LANE, "catch-up": CATCH_UP_LANE}[arguments[0]]
        request = self.states.build_request(self.now_ms, lane)
        if request is None:
            self.said.append("nothing to ask for")
            return
        self.in_flight.append(request)
        named = ", ".join(f"{asked.key[0]} from {asked.fetch_offset}" for asked in request.partitions)
        forgotten = ", ".join(key[0] for key, _ in request.forgotten)
        self.said.append(
            f"session {request.session_id} epoch {request.session_epoch}: {named or 'names nobody'}"
            + (f"; forgets {forgotten}" if forgotten else "")
        )

    def do_show(self, arguments: list[str], options: dict[str, str]) -> None:
        for name, log in self.logs.items():
            state = self.states.get(self._key(name))
            stored = " ".join(f"{at}:{v}/{e}" for at, (e, v) in log.log.values().items()) or "empty"
            phase = "not followed" if state is None else state.phase.value
            if state is not None and state.phase is FetchPhase.FETCHING and not state.is_due(self.now_ms):
                phase = "delayed"
            entries = ", ".join(f"{entry.epoch}@{entry.start_offset}" for entry in log.epochs.entries)
            self.said.append(
                f"{name}: {phase}, {stored}, {log.log_start_offset} to {log.log_end_offset},"
                f" hw={log.high_watermark}, epochs {entries or 'none'}"
            )

    # -- the leader

    def do_answer(self, arguments: list[str], options: dict[str, str]) -> None:
        """answer NAME [OFFSET:VALUES/EPOCH...] [error=CODE] [diverging=EPOCH@END] [hw=N] [start=N] [session=N] [again]

        Answers the oldest fetch in flight; partitions that are not named are left out. `again`: it stays in
        flight, and is answered once more.
        """
        again = "again" in arguments
        name, *batches = (argument for argument in arguments if argument != "again")
        diverging = None
        if "diverging" in options:
            epoch, end = options["diverging"].split("@")
            diverging = int(epoch), int(end)
        answer = FetchedPartition(
            self._key(name),
            options.get("error"),
            int(options.get("hw", "0")),
            int(options.get("start", "0")),
            diverging,
            MemoryRead(tuple(map(_batch, batches))).encode() if batches else b"",
        )
        request = self.in_flight[0] if again else self.in_flight.pop(0)
        response = FetchResponse((answer,), session_id=int(options.get("session", "0")))
        self.replication.apply_fetch(request, response, self.now_ms)

    def do_answer_all(self, arguments: list[str], options: dict[str, str]) -> None:
        """answer-all session=N: the oldest fetch is a full one, and has found nothing new anywhere."""
        request = self.in_flight.pop(0)
        answers = tuple(FetchedPartition(asked.key, None, 0, 0) for asked in request.partitions)
        response = FetchResponse(answers, session_id=int(options["session"]))
        self.replication.apply_fetch(request, response, self.now_ms)

    def do_answer_nothing(self, arguments: list[str], options: dict[str, str]) -> None:
        """answer-nothing session=N: the oldest fetch has waited in vain."""
        response = FetchResponse((), session_id=int(options["session"]))
        self.replication.apply_fetch(self.in_flight.pop(0), response, self.now_ms)

    def do_refuse(self, arguments: list[str], options: dict[str, str]) -> None:
        """refuse CODE: the oldest fetch as a whole is answered with an error of its session."""
        self.states.release(self.in_flight.pop(0), arguments[0])

    def do_lose(self, arguments: list[str], options: dict[str, str]) -> None:
        """lose: the connection breaks; whether the leader took the oldest fetch nobody knows."""
        self.states.release(self.in_flight.pop(0))

    def do_ask_offsets(self, arguments: list[str], options: dict[str, str]) -> None:
        """ask-offsets START END | error=CODE: the leader's log bounds, for who is out of its range."""
        queries = self.states.offsets_queries(self.now_ms)
        if not queries:
            self.said.append("nobody is out of range")
        start, end = map(int, arguments or ("-1", "-1"))
        bounds = LeaderOffsets(start, end, options.get("error"))
        for query in queries:
            self.said.append(f"{query.key[0]}: asks for offsets in epoch {query.current_leader_epoch}")
        self.replication.apply_offsets(queries, {query.key: bounds for query in queries}, self.now_ms)


def _batch(text: str) -> MemoryBatch:
    offset, rest = text.split(":")
    values, epoch = rest.split("/")
    return MemoryBatch(int(offset), int(epoch), tuple(values.split(",")))


@pytest.mark.parametrize("path", scripts_beside(__file__), ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    check_script(path, Story().play)
