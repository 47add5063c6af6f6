"""`kraft reassign start --wait`: what it tells at its deadline, and whom it asks when a broker does not answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kraft.cli.app import run
from kraft.cli.reassign import moves
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.protocol.schemas.metadata import MetadataResponse
from kraft.protocol.schemas.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kraft.user_error import EXIT_DONE, EXIT_FAILED, EXIT_UNDECIDED
from tests.support.fake_broker import FakeCluster

Key = tuple[str, int]


class Moving(FakeCluster):
    """Begins every move to brokers that are known, and has those under way that it is told to have."""

    def __init__(self, brokers: int = 1) -> None:
        super().__init__(brokers)
        self.under_way: dict[Key, list[int]] = {}
        self.replicas: dict[Key, list[int]] = {}
        """What Metadata says."""
        self.on_list: Callable[[int, int], ErrorCode | None] = lambda broker_id, number: None
        """Called with the broker that is asked for reassignments, and how often they were asked for before."""
        self.lists: list[int] = []

    def answer(self, broker_id: int, request: Message) -> Message:
        if isinstance(request, AlterPartitionReassignmentsRequest):
            return _begun(request)
        if isinstance(request, ListPartitionReassignmentsRequest):
            self.lists.append(broker_id)
            if error := self.on_list(broker_id, len(self.lists) - 1):
                return ListPartitionReassignmentsResponse(error_code=error, error_message="no controller")
            return self._list()
        answer = super().answer(broker_id, request)
        if isinstance(answer, MetadataResponse):
            for topic in answer.topics:
                for state in topic.partitions:
                    known = self.replicas.get((topic.name or "", state.partition_index))
                    state.replica_nodes = known or state.replica_nodes
        return answer

    def _list(self) -> ListPartitionReassignmentsResponse:
        topics = []
        for (name, number), target in self.under_way.items():
            state = OngoingPartitionReassignment(
                partition_index=number, replicas=[*target, 1], adding_replicas=target, removing_replicas=[1]
            )
            topics.append(OngoingTopicReassignment(name=name, partitions=[state]))
        return ListPartitionReassignmentsResponse(topics=topics)


def _begun(request: AlterPartitionReassignmentsRequest) -> Message:
    def outcome(number: int, replicas: Sequence[int] | None) -> ReassignablePartitionResponse:
        if replicas is not None and 99 in replicas:
            code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
            return ReassignablePartitionResponse(partition_index=number, error_code=code, error_message="no")
        return ReassignablePartitionResponse(partition_index=number)

    return AlterPartitionReassignmentsResponse(
        responses=[
            ReassignableTopicResponse(
                name=topic.name, partitions=[outcome(p.partition_index, p.replicas) for p in topic.partitions]
            )
            for topic in request.topics
        ]
    )


class Ran(NamedTuple):
    """What a command did."""

    exit_code: int
    stdout: str
    stderr: str

    def errors(self) -> dict[Key, str | None]:
        """By partition, of its one JSON object."""
        return {(row["topic"], row["partition"]): row["error"] for row in self._rows()}

    def messages(self) -> dict[Key, str]:
        return {(row["topic"], row["partition"]): row["message"] for row in self._rows() if row["error"]}

    def _rows(self) -> list[dict[str, Any]]:
        return list(json.loads(self.stdout)["partitions"])


Start = Callable[..., Ran]


@pytest.fixture
def cluster() -> Iterator[Moving]:
    """Of its two brokers the first has all; three partitions of `t` are to go to the second."""
    with Moving(brokers=2) as made:
        made.create_topic("t", leaders=(1, 1, 1))
        yield made


@pytest.fixture
def start(
    cluster: Moving, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Start:
    """`kraft reassign start --wait` of some partitions, a second at most unless it is told another time."""
    monkeypatch.setattr(moves, "LOOK_EVERY_S", 0.02)

    def ran(targets: dict[Key, list[int]], *options: str) -> Ran:
        rows = [
            {"topic": name, "partition": number, "replicas": to} for (name, number), to in targets.items()
        ]
        file = tmp_path / "plan.json"
        file.write_text(json.dumps({"partitions": rows}))
        if "--timeout" not in options:
            options = ("--timeout", "1", *options)
        command = ["reassign", "start", "--file", str(file), "--wait", *options]
        exit_code = run([*command, "--bootstrap-server", cluster.bootstrap])
        return Ran(exit_code, *capsys.readouterr())

    return ran


ALL = {("t", 0): [2], ("t", 1): [2], ("gone", 0): [2], ("t", 2): [2]}
"""The first is done, the second was cancelled, the third was deleted; the last is as the test has it."""


def test_at_the_deadline_each_is_told_what_has_become_of_it(cluster: Moving, start: Start) -> None:
    cluster.replicas["t", 0] = [2]
    cluster.under_way["t", 2] = [2]
    ran = start(ALL, "--json")
    assert ran.exit_code == EXIT_UNDECIDED
    assert ran.errors() == {
        ("t", 0): None,
        ("t", 1): "NO_REASSIGNMENT_IN_PROGRESS",
        ("gone", 0): "UNKNOWN_TOPIC_OR_PARTITION",
        ("t", 2): "REASSIGNMENT_IN_PROGRESS",
    }
    assert "it is on brokers 1" in ran.messages()["t", 1]
    assert "still under way" in ran.messages()["t", 2]
    assert "within 1 s; what goes on: kraft reassign list" in ran.stderr


def test_at_the_deadline_nothing_goes_on_that_has_ended(cluster: Moving, start: Start) -> None:
    cluster.replicas |= {("t", 0): [2], ("t", 2): [2]}
    ran = start(ALL)
    assert ran.exit_code == EXIT_FAILED
    assert ran.stdout == "t-0 done\nt-2 done\n"
    assert "t-1: it was cancelled" in ran.stderr
    assert "gone-0: it was deleted meanwhile" in ran.stderr
    assert "within 1 s" not in ran.stderr


def test_what_was_refused_is_told_beside_what_goes_on(cluster: Moving, start: Start) -> None:
    cluster.under_way["t", 1] = [2]
    ran = start({("t", 0): [99], ("t", 1): [2]}, "--json")
    assert ran.exit_code == EXIT_UNDECIDED
    assert ran.errors() == {("t", 0): "INVALID_REPLICA_ASSIGNMENT", ("t", 1): "REASSIGNMENT_IN_PROGRESS"}


def test_a_broker_that_has_heard_of_no_end_says_nothing_about_it(cluster: Moving, start: Start) -> None:
    """Its metadata still has the replicas that the partition had on its way."""
    cluster.under_way["t", 0] = [2]
    cluster.replicas["t", 0] = [2, 1]

    def end(_: int, number: int) -> None:
        if number == 3:
            cluster.under_way.clear()

    cluster.on_list = end
    ran = start({("t", 0): [2]}, "--json")
    assert (ran.exit_code, ran.errors()) == (EXIT_UNDECIDED, {("t", 0): "REQUEST_TIMED_OUT"})
    assert "not heard yet" in ran.messages()["t", 0]


def test_a_lost_connection_does_not_end_the_wait(cluster: Moving, start: Start) -> None:
    cluster.under_way["t", 0] = [2]

    def hang_up(broker_id: int, number: int) -> None:
        if number >= 2 and broker_id == 1:
            raise ConnectionResetError
        if broker_id == 2:
            cluster.under_way.clear()
            cluster.replicas["t", 0] = [2]

    cluster.on_list = hang_up
    ran = start({("t", 0): [2]}, "--timeout", "30")
    assert (ran.exit_code, ran.stdout) == (EXIT_DONE, "t-0 done\n"), ran.stderr
    assert cluster.lists == [1, 1, 1, 2]


def test_a_broker_without_controller_does_not_end_the_wait(cluster: Moving, start: Start) -> None:
    cluster.replicas["t", 0] = [2]
    cluster.on_list = lambda broker_id, number: ErrorCode.REQUEST_TIMED_OUT if number < 3 else None
    ran = start({("t", 0): [2]}, "--timeout", "30")
    assert (ran.exit_code, ran.stdout) == (EXIT_DONE, "t-0 done\n"), ran.stderr
    assert cluster.lists == [1, 2, 1, 2]


def test_a_broker_that_stands_still_does_not_end_the_wait(
    cluster: Moving, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "ANSWER_WITHIN_S", 0.1)
    cluster.replicas["t", 0] = [2]
    goes_on = threading.Event()

    def stand_still(broker_id: int, _: int) -> None:
        if broker_id == 1:
            goes_on.wait(30)

    cluster.on_list = stand_still
    try:
        ran = start({("t", 0): [2]}, "--timeout", "30")
    finally:
        goes_on.set()
    assert (ran.exit_code, ran.stdout) == (EXIT_DONE, "t-0 done\n"), ran.stderr
    assert cluster.lists == [1, 2]


def test_when_nobody_answers_any_more_the_last_that_was_known_is_told(cluster: Moving, start: Start) -> None:
    cluster.under_way["t", 1] = [2]

    def hang_up(_: int, number: int) -> None:
        if number >= 2:
            raise ConnectionResetError

    cluster.on_list = hang_up
    ran = start({("t", 0): [2], ("t", 1): [2]}, "--json")
    assert ran.exit_code == EXIT_UNDECIDED
    assert ran.errors() == {("t", 0): "NO_REASSIGNMENT_IN_PROGRESS", ("t", 1): "REQUEST_TIMED_OUT"}
    assert "was under way when last heard of: the connection to" in ran.messages()["t", 1]
    assert 4 <= len(cluster.lists) < 20, "it looks again, less and less often"


def test_when_nobody_ever_tells_that_is_told(cluster: Moving, start: Start) -> None:
    cluster.on_list = lambda broker_id, number: ErrorCode.REQUEST_TIMED_OUT
    ran = start({("t", 0): [2]}, "--json")
    assert (ran.exit_code, ran.errors()) == (EXIT_UNDECIDED, {("t", 0): "REQUEST_TIMED_OUT"})
    assert ran.messages()["t", 0].startswith("nothing has been heard of it: reassignments cannot be listed")


def test_a_refusal_to_list_ends_the_wait(cluster: Moving, start: Start) -> None:
    cluster.on_list = lambda broker_id, number: ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    ran = start({("t", 0): [2]}, "--timeout", "30")
    assert (ran.exit_code, cluster.lists) == (EXIT_FAILED, [1])


def test_what_was_cancelled_is_told_though_throttles_may_have_stayed(
    cluster: Moving, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.on_list = lambda broker_id, number: ErrorCode.REQUEST_TIMED_OUT
    command = ["reassign", "cancel", "t", "--partition", "0", "--json"]
    ran = Ran(run([*command, "--bootstrap-server", cluster.bootstrap]), *capsys.readouterr())
    assert (ran.exit_code, ran.errors()) == (EXIT_UNDECIDED, {("t", 0): None})
    assert "throttles may have stayed" in ran.stderr
    assert "run kraft reassign verify" in ran.stderr
