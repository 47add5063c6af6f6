"""Each kind of workload against a real simulated cluster: its history is what the cluster holds."""

from __future__ import annotations

from collections import Counter

import pytest

from kraft.chaos.checker import check_history
from kraft.chaos.history import OperationKind, OperationStatus
from kraft.chaos.scenario import NodeSpec, TopicSpec, WorkloadSpec
from kraft.chaos.workload import base, consumer
from kraft.chaos.workload.client import Client
from kraft.chaos.workload.reader import Reader
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.offsets import LATEST_TIMESTAMP
from kraft.protocol.schemas.topics import DeleteTopicsRequest
from tests.unit.chaos.workload.stage import TOPIC, Stage, acknowledged, staged

IDEMPOTENT = WorkloadSpec("idempotent-producer", 0, TOPIC.name, per_second=60.0)
CONSUMER = WorkloadSpec("consumer", 1, TOPIC.name, per_second=60.0)
CHURN = WorkloadSpec("topic-churn", 2, per_second=20.0)
ONE_NODE = (NodeSpec(1),)
ONE_REPLICA = (TopicSpec("orders", 2, 1),)


def plain(acks: int, per_second: float = 40.0) -> WorkloadSpec:
    return WorkloadSpec("producer", 10 + acks, TOPIC.name, acks, per_second)


def assert_sound(stage: Stage) -> None:
    """No judge complains."""
    assert not stage.verdicts.violations
    report = check_history(stage.history)
    assert report.verdict == "valid", (report.anomalies, report.undecided)


@pytest.fixture
def without_crashes(monkeypatch):
    monkeypatch.setattr(base, "CRASHING_SHARE", 0.0)


@pytest.fixture
def crashing_often(monkeypatch):
    monkeypatch.setattr(base, "CRASHING_SHARE", 1.0)
    monkeypatch.setattr(base, "LIFE_S", (0.5, 1.5))


def test_an_idempotent_producer_writes_what_its_history_says(without_crashes):
    with staged(IDEMPOTENT) as stage:
        stage.simulation.run_for(2.0)
        stage.finish()
        assert stage.on_disk() == acknowledged(stage.sends)
        assert_sound(stage)
    assert all(send.idempotent for send in stage.sends)
    assert 90 <= len(stage.sends) <= 160
    assert stage.workloads.acknowledged == {"idempotent-producer#0": len(stage.sends)}


def test_several_batches_of_a_partition_are_in_flight(without_crashes):
    with staged(IDEMPOTENT) as stage:
        stage.simulation.run_for(2.0)
        stage.finish()
    most = 0
    for send in stage.sends:
        together = [
            other
            for other in stage.sends
            if other.key == send.key and other.invoked_s <= send.invoked_s < other.completed_s
        ]
        most = max(most, len(together))
    assert most == 4


def test_all_that_is_acknowledged_by_all_is_told(without_crashes):
    with staged(IDEMPOTENT, plain(-1), plain(1)) as stage:
        stage.simulation.run_for(1.0)
        stage.finish()
    expected = [(send.key, send.base_offset, send.values) for send in stage.sends if send.acks == -1]
    assert len(stage.told) > 60
    assert sorted(stage.told) == sorted(expected)


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_plain_producer_writes_what_its_history_says(without_crashes, acks):
    with staged(plain(acks)) as stage:
        stage.simulation.run_for(2.0)
        stage.finish()
        assert stage.on_disk() == acknowledged(stage.sends)
    assert {(send.acks, send.idempotent, send.status) for send in stage.sends} == {
        (acks, False, OperationStatus.OK)
    }
    assert len(stage.sends) > 50


def test_without_acks_there_are_no_offsets_and_everything_arrives(without_crashes):
    with staged(plain(0)) as stage:
        stage.simulation.run_for(2.0)
        stage.finish()
        written = [value for log in stage.on_disk().values() for value in log.values()]
    assert {(send.status, send.base_offset) for send in stage.sends} == {(OperationStatus.OK, -1)}
    assert sorted(written) == sorted(value for send in stage.sends for value in send.values)
    assert not stage.told


def test_a_client_asks_for_offsets_and_takes_the_answers_to_the_judge(without_crashes):
    asked: list[tuple[int, int]] = []
    told: list[tuple[int, int, int]] = []

    def judge(key, timestamp, broker):
        assert broker in stage.cluster.specs
        asked.append((key[1], timestamp))
        return lambda offset, epoch, found: told.append((offset, epoch, found))

    lister = WorkloadSpec("list-offsets", 1, TOPIC.name, per_second=30.0)
    with staged(IDEMPOTENT, lister, on_list_offsets=judge) as stage:
        stage.simulation.run_for(4.0)
        stage.finish()
        assert_sound(stage)
    answers = stage.operations(OperationKind.LIST_OFFSETS, OperationStatus.OK)
    assert len(told) == len(asked)
    at_the_end = 3 * TOPIC.partitions
    assert len(asked) - len(answers) >= at_the_end, "the last reader asks for starts and ends, too"
    timed = [answer for answer in answers if answer.position >= 0]
    assert len(timed) == len([timestamp for _, timestamp in asked if timestamp >= 0])
    assert len(answers) > 60
    about_epochs = stage.workloads.acknowledged["list-offsets#1"] - len(answers)
    assert about_epochs > 10, "it asks where leader epochs end, too"
    assert {number for number, _ in asked} == set(range(TOPIC.partitions))
    by_timestamp = {-1: 0, -2: 0, 0: 0}
    for answer in answers:
        by_timestamp[min(answer.position, 0)] += 1
    assert min(by_timestamp.values()) > 10
    assert max(answer.next_offset for answer in answers) > 30
    assert {answer.next_offset for answer in answers if answer.position == -2} == {0}


def test_producers_tell_where_they_got_nothing_through_since(without_crashes):
    with staged(IDEMPOTENT, plain(1)) as stage:
        began_s = stage.simulation.now
        partitions = [f"idempotent-producer#0 to {TOPIC.name}-{n}" for n in range(TOPIC.partitions)]
        assert stage.workloads.unserved_since(began_s) == partitions
        stage.wait(lambda: not stage.workloads.unserved_since(began_s))
        assert stage.workloads.unserved_since(stage.simulation.now) == partitions
        stage.finish()
        assert stage.workloads.unserved_since(stage.simulation.now) == [], "they have stopped"


def test_a_consumer_reads_everything_in_order(without_crashes):
    with staged(IDEMPOTENT, CONSUMER) as stage:
        stage.simulation.run_for(2.0)
        stage.finish()
        on_disk = stage.on_disk()
        assert_sound(stage)
    read: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
    for poll in stage.polls:
        assert poll.key is not None
        before = read.setdefault((poll.topic, poll.key[1]), [])
        assert poll.sought is (not before)
        assert poll.position == len(before)
        assert poll.next_offset == poll.position + len(poll.records)
        before += poll.records
    for name, records in read.items():
        assert records == list(on_disk[name].items())[: len(records)]
    assert stage.workloads.acknowledged["consumer#1"] > 40


def test_an_idle_consumer_polls_in_vain(without_crashes):
    with staged(CONSUMER) as stage:
        stage.simulation.run_for(2.0)
        stage.finish()
    assert 6 <= len(stage.polls) <= 100
    assert not any(poll.records for poll in stage.polls)
    assert stage.workloads.acknowledged == {"consumer#1": 0}


def test_the_final_phase_reads_everything(without_crashes):
    with staged(IDEMPOTENT) as stage:
        stage.simulation.run_for(1.0)
        stage.finish()
        on_disk = stage.on_disk()
    finals = [poll for poll in stage.operations(OperationKind.POLL) if poll.final]
    read: dict[tuple[str, int], dict[int, bytes]] = {}
    for poll in finals:
        assert poll.key is not None
        read.setdefault((poll.topic, poll.key[1]), {}).update(poll.records)
    assert read == on_disk
    assert {poll.process for poll in finals} == {"reader-final#0.1"}
    assert list(stage.history.log_starts.values()) == [0, 0, 0]


def test_the_final_phase_ends_where_a_new_leader_has_less_than_the_old_one_said(without_crashes, monkeypatch):
    """As after an unclean election in the middle of the reading; whether that may be is for others to judge."""
    ask, has_asked = Reader.offset_of, set()

    async def offset_of(reader, broker, position, timestamp):
        offset = await ask(reader, broker, position, timestamp)
        if timestamp != LATEST_TIMESTAMP or offset is None or position.name in has_asked:
            return offset
        has_asked.add(position.name)
        return offset + 5

    with staged(IDEMPOTENT) as stage:
        stage.simulation.run_for(1.0)
        monkeypatch.setattr(Reader, "offset_of", offset_of)
        stage.finish()
    assert len(has_asked) == TOPIC.partitions


def test_the_final_phase_tells_of_empty_partitions_too():
    with staged() as stage:
        stage.finish()
    finals = [poll for poll in stage.operations(OperationKind.POLL) if poll.final]
    assert [(poll.status, poll.records, poll.position) for poll in finals] == [
        (OperationStatus.OK, (), 0)
    ] * 3


def test_topics_come_and_go(without_crashes):
    with staged(CHURN) as stage:
        stage.simulation.run_for(4.0)
        stage.finish()
        assert not stage.verdicts.violations
        image = stage.cluster.image()
        assert image is not None
        assert set(image.topic_ids) == {TOPIC.name}
    created = Counter(o.topic for o in stage.operations(OperationKind.CREATE_TOPIC, OperationStatus.OK))
    deleted = Counter(o.topic for o in stage.operations(OperationKind.DELETE_TOPIC, OperationStatus.OK))
    del created[TOPIC.name]
    assert created == deleted
    assert max(created.values()) > 1, "no name was used again"
    ids = {(send.topic, send.key[0]) for send in stage.sends if send.key is not None}
    assert max(Counter(topic for topic, _ in ids).values()) > 1
    assert {send.acks for send in stage.sends} == {-1}
    sent, read = {}, {}
    for send in stage.sends:
        assert send.key is not None
        sent.setdefault(send.key, {}).update(enumerate(send.values, send.base_offset))
    for poll in stage.polls:
        assert poll.key is not None
        if poll.records:
            read.setdefault(poll.key, {}).update(poll.records)
    assert read == sent


def test_a_topic_is_deleted_by_its_id_lest_a_late_attempt_hit_the_next_of_its_name(
    without_crashes, monkeypatch
):
    asked = []
    call = Client.call_any

    async def recorded(client, message, version, answers):
        if isinstance(message, DeleteTopicsRequest):
            asked.extend(message.topics)
        return await call(client, message, version, answers)

    monkeypatch.setattr(Client, "call_any", recorded)
    with staged(CHURN, nodes=ONE_NODE, topics=ONE_REPLICA) as stage:
        stage.simulation.run_for(4.0)
        stage.finish()
    assert len(asked) > 1
    assert {topic.name for topic in asked} == {None}
    assert len({topic.topic_id for topic in asked}) == len(asked)


def test_clients_that_crash_come_back_as_others(crashing_often):
    with staged(IDEMPOTENT, CONSUMER, plain(-1), CHURN) as stage:
        stage.simulation.run_for(6.0)
        stage.finish()
        assert_sound(stage)
    assert stage.verdicts.coverage["client crash"] >= 6
    for kind in ("idempotent-producer#0", "consumer#1", "producer#9", "topic-churn#2"):
        lives = {o.process for o in stage.history.operations if o.process.startswith(kind)}
        assert len(lives) > 1, kind
    unknown = stage.operations(OperationKind.SEND, OperationStatus.INFO)
    assert "the client crashed" in {send.error for send in unknown}
    assert not stage.operations(OperationKind.SEND, OperationStatus.PENDING)


def test_a_client_that_crashed_at_the_end_comes_back_for_its_topic(without_crashes):
    """Nobody would read a topic that is neither deleted nor part of the scenario."""
    with staged(CHURN, nodes=ONE_NODE, topics=ONE_REPLICA) as stage:
        churn = stage.workloads._workloads[0]
        stage.wait(lambda: churn.must_come_back and churn.has_open_operations)
        churn._crash(0)
        stage.finish()
        assert stage.cluster.image().topic_ids.keys() == {"orders"}
    assert stage.verdicts.coverage["client crash"] == 1


@pytest.mark.parametrize(
    ("flushes", "status"),
    [({}, OperationStatus.FAIL), ({"log.flush.interval.messages": "1"}, OperationStatus.INFO)],
)
def test_a_deposed_leader_may_have_appended_what_waited_for_a_flush(without_crashes, flushes, status):
    """With acks=1, too: then only the answer of one that appends nothing is certain."""
    with staged(plain(1), properties=flushes) as stage:
        producer = stage.workloads._workloads[0]
        stage.wait(lambda: producer.has_open_operations)
        state = next(state for state in producer._states if state.open)
        send = state.open
        send.attempts_left = 0
        producer._failed(state, send, 1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert send.operation.status is status


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_new_consumer_begins_at_the_start_or_where_it_stored(crashing_often, monkeypatch, share):
    monkeypatch.setattr(consumer, "FROM_START_SHARE", share)
    with staged(IDEMPOTENT, CONSUMER) as stage:
        stage.simulation.run_for(4.0)
        stage.finish()
        assert_sound(stage)
    first = {}
    for poll in stage.polls:
        first.setdefault((poll.process, poll.key), poll)
    assert all(poll.sought for poll in first.values())
    begun_at = {poll.position > 0 for poll in first.values() if not poll.process.endswith(".1")}
    assert begun_at == {share == 0.0}


def test_retries_neither_lose_nor_double_anything(without_crashes):
    """The leader of a partition dies: with an identity, what was in flight is there once."""
    with staged(IDEMPOTENT, CONSUMER) as stage:
        for _ in range(2):
            stage.simulation.run_for(0.51)
            leader = stage.cluster.leader_of(TOPIC.name, 0)
            stage.cluster.hosts[leader].kill()
            stage.simulation.run_for(2.0)
            stage.cluster.start_node(leader)
            stage.wait(lambda: not stage.ailments())
        stage.finish()
        assert stage.on_disk() == acknowledged(stage.sends)
        assert_sound(stage)
    assert {send.status for send in stage.sends} == {OperationStatus.OK}
    assert max(send.completed_s - send.invoked_s for send in stage.sends) > 0.5, "nothing had to be retried"


def test_a_send_that_was_refused_has_failed(without_crashes):
    """Too few replicas in sync: nothing is appended, and a plain producer gives up."""
    topics = (TopicSpec("orders", 2, 3, {"min.insync.replicas": "3"}),)
    with staged(plain(-1), topics=topics) as stage:
        stage.simulation.run_for(0.5)
        follower = next(n for n in (1, 2, 3) if n != stage.cluster.leader_of("orders", 0))
        stage.cluster.hosts[follower].kill()
        stage.simulation.run_for(5.0)
        stage.cluster.start_node(follower)
        stage.wait(lambda: not stage.ailments())
        stage.finish()
        written = {value for log in stage.on_disk().values() for value in log.values()}
        assert_sound(stage)
    failed = stage.operations(OperationKind.SEND, OperationStatus.FAIL)
    assert failed
    assert {send.error for send in failed} <= {"NOT_ENOUGH_REPLICAS", "delivery timeout"}
    assert not written & {value for send in failed for value in send.values}


@pytest.mark.parametrize("is_explained", [True, False])
def test_a_log_that_lost_its_end_refuses_the_next_sequence(without_crashes, is_explained):
    """One replica, and the power goes: only what faults explain is no surprise, and life goes on."""
    asked = []

    def explains(key, offset, value):
        asked.append((key, offset, value))
        return is_explained

    with staged(IDEMPOTENT, nodes=ONE_NODE, topics=ONE_REPLICA, explains=explains, seed=5) as stage:
        for _ in range(4):
            stage.simulation.run_for(1.0)
            stage.cluster.hosts[1].power_loss()
            stage.cluster.start_node(1)
            stage.wait(lambda: not stage.ailments())
        stage.simulation.run_for(1.0)
        stage.finish()
    assert asked
    known = {(send.key, o, v) for send in stage.sends for o, v in enumerate(send.values, send.base_offset)}
    assert set(asked) <= known
    assert stage.oracles == (set() if is_explained else {"unexpected-answer"})
    refused = stage.operations(OperationKind.SEND, OperationStatus.INFO)
    assert {send.error for send in refused} == {"refused with OUT_OF_ORDER_SEQUENCE_NUMBER"}
    assert len({send.process for send in stage.sends}) > 1, "no new identity"


def test_what_an_excused_node_answers_is_no_surprise(without_crashes):
    with staged() as stage:
        around = stage.workloads._around
        stage.cluster.excuse(1)
        around.surprise("somebody", 1, "nonsense")
        assert not stage.oracles
        around.surprise("somebody", 2, "nonsense")
        assert stage.oracles == {"unexpected-answer"}


def test_a_workload_stops_after_its_operations(without_crashes):
    few = WorkloadSpec("idempotent-producer", 0, TOPIC.name, per_second=60.0, operations_max=7)
    with staged(few) as stage:
        stage.wait(lambda: not stage.workloads.undrained)
        assert len(stage.sends) == 7
        assert {send.status for send in stage.sends} == {OperationStatus.OK}


def test_taking_a_workload_away_leaves_the_draws_of_the_others(without_crashes):
    def first_values(*workloads: WorkloadSpec) -> list[tuple[bytes, ...]]:
        with staged(*workloads) as stage:
            stage.simulation.run_for(0.3)
        mine = [send.values for send in stage.sends if send.process.startswith("producer#11")]
        return mine[:3]

    alone = first_values(plain(1))
    assert len(alone) == 3
    assert first_values(IDEMPOTENT, CONSUMER, plain(1)) == alone


def test_one_seed_is_one_history():
    def digest() -> str:
        with staged(IDEMPOTENT, CONSUMER, plain(1), CHURN) as stage:
            stage.simulation.run_for(1.5)
            return stage.simulation.digest()

    assert digest() == digest()


def test_an_operator_moves_partitions_and_leaderships(without_crashes):
    operator = WorkloadSpec("operator", 4, TOPIC.name, per_second=6.0)
    nodes = tuple(NodeSpec(number) for number in (1, 2, 3, 4))
    with staged(IDEMPOTENT, operator, nodes=nodes) as stage:
        stage.simulation.run_for(8.0)
        stage.finish()
        stage.wait(lambda: not stage.ailments())
        assert_sound(stage)
    coverage = stage.verdicts.coverage
    assert coverage["reassignment asked for"] > 0
    assert coverage["preferred election asked for"] > 0
    assert stage.workloads.acknowledged["operator#4"] > 6
