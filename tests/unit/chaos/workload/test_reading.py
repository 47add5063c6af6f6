"""How simulated consumers read: in fetch sessions, from replicas in their rack, and what they hold brokers to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kraft.chaos.scenario import NodeSpec, WorkloadSpec
from kraft.chaos.workload import base
from kraft.chaos.workload.read_session import ReadSession
from kraft.chaos.workload.reader import SENT_NEARER
from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import FetchPartition, FetchRequest, FetchResponse
from partitions.partition import Partition
from partitions.replica_selector import RACK_AWARE_SELECTOR
from quorum.metadata.records import BROKER_RESOURCE
from tests.unit.chaos.workload.stage import TOPIC, Stage, staged

IDEMPOTENT = WorkloadSpec("idempotent-producer", 0, TOPIC.name, per_second=60.0)
CONSUMER = WorkloadSpec("consumer", 1, TOPIC.name, per_second=60.0)
IN_SESSIONS = replace(CONSUMER, fetch_sessions=True)
SLOTS = "max.incremental.fetch.session.cache.slots"
IN_RACKS = tuple(NodeSpec(number, rack=rack) for number, rack in enumerate("abc", start=1))
ORDERS, AUDIT = bytes(15) + b"\x01", bytes(15) + b"\x02"


@pytest.fixture(autouse=True)
def _without_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "CRASHING_SHARE", 0.0)


def read_by(stage: Stage) -> dict[tuple[str, int], dict[int, bytes]]:
    """By partition: what consumers read, each record once."""
    found: dict[tuple[str, int], dict[int, bytes]] = {}
    for poll in stage.polls:
        assert poll.key is not None
        log = found.setdefault((poll.topic, poll.key[1]), {})
        assert not log.keys() & dict(poll.records).keys()
        log.update(poll.records)
    return found


def incremental_fetches(stage: Stage) -> int:
    """That brokers have taken of consumers; followers read to the log's end in every test."""
    caches = [node.broker.replicas.fetch_purgatory.sessions.cache for node in stage.cluster.nodes.values()]
    return sum(
        known.epoch - 1
        for cache in caches
        for known in cache._sessions.values()
        if not known.reader.is_follower
    )


@pytest.mark.parametrize("slots", ["1000", "3", "0"])
def test_a_consumer_reads_the_same_in_sessions_however_few_there_are(slots: str) -> None:
    with staged(IDEMPOTENT, IN_SESSIONS, properties={SLOTS: slots}) as stage:
        stage.simulation.run_for(3.0)
        assert (incremental_fetches(stage) > 30) == (slots != "0")
        stage.finish()
        assert not stage.verdicts.violations
        on_disk = stage.on_disk()
    for name, log in read_by(stage).items():
        assert len(log) > 30
        assert log == dict(list(on_disk[name].items())[: len(log)])


def test_a_consumer_goes_where_its_rack_is() -> None:
    properties = {"replica.selector.class": RACK_AWARE_SELECTOR}
    with staged(IDEMPOTENT, replace(IN_SESSIONS, rack="b"), nodes=IN_RACKS, properties=properties) as stage:
        stage.simulation.run_for(3.0)
        stage.finish()
        assert not stage.verdicts.violations
        on_disk = stage.on_disk()
    assert stage.verdicts.coverage[SENT_NEARER] >= 2, "broker 2 leads one of the three partitions"
    for name, log in read_by(stage).items():
        assert len(log) > 30
        assert log == dict(list(on_disk[name].items())[: len(log)])


def test_nobody_sends_a_consumer_anywhere_without_a_selector() -> None:
    with staged(IDEMPOTENT, replace(CONSUMER, rack="b"), nodes=IN_RACKS) as stage:
        stage.simulation.run_for(1.0)
        stage.finish()
    assert stage.verdicts.coverage[SENT_NEARER] == 0


def test_a_consumer_is_held_to_read_on_where_something_was_written() -> None:
    with staged(IDEMPOTENT, CONSUMER) as stage:
        began_s = stage.simulation.now
        stage.wait(lambda: not stage.workloads.unserved_since(began_s))
        consumer = stage.workloads._workloads[1]
        assert not consumer.unread_since(began_s)
        now_s = stage.simulation.now
        consumer.newest_read_s.clear()
        producer = stage.workloads._workloads[0]
        producer.newest_write_s = dict.fromkeys(producer.newest_write_s, now_s + 1)
        assert stage.workloads.unserved_since(now_s) == [
            f"consumer#1 of {TOPIC.name}-{number}" for number in range(TOPIC.partitions)
        ]
        producer.newest_write_s.clear()
        assert not [text for text in stage.workloads.unserved_since(now_s) if " of " in text]
        stage.finish()


def test_records_above_the_high_watermark_that_is_told_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Partition.read_for_consumer

    def told_too_little(replica: Partition, *arguments: Any, **options: Any) -> Any:
        answer = original(replica, *arguments, **options)
        return answer._replace(high_watermark=max(0, answer.high_watermark - 1))

    monkeypatch.setattr(Partition, "read_for_consumer", told_too_little)
    with staged(IDEMPOTENT, CONSUMER) as stage:
        stage.wait(lambda: bool(stage.verdicts.violations))
        assert stage.oracles == {"high-watermark-bounded"}


def test_limits_are_set_at_run_time_and_taken_away() -> None:
    configs = {"leader.replication.throttled.rate": "100000", "follower.replication.throttled.rate": "50000"}
    with staged(run_time_configs=configs) as stage:

        def now() -> dict[str, str]:
            image = stage.cluster.image()
            return {} if image is None else dict(image.config(BROKER_RESOURCE, ""))

        assert now() == configs
        stage.workloads.take_limits_away()
        stage.wait(lambda: not now())


# -- the reader's half of a session


def wanted(**offsets: int) -> dict[tuple[bytes, int], FetchPartition]:
    """o0=5: partition 0 of orders from offset 5; a is audit."""
    found = {}
    for name, offset in offsets.items():
        number = int(name[1:])
        topic_id = {"o": ORDERS, "a": AUDIT}[name[0]]
        found[topic_id, number] = FetchPartition(partition=number, fetch_offset=offset)
    return found


def request(session: ReadSession, **offsets: int) -> tuple[int, int, list[tuple[bytes, int]], list[bytes]]:
    """Session id and epoch, what is named, and the topics of what is forgotten."""
    made = FetchRequest()
    session.name(made, wanted(**offsets))
    named = [(topic.topic_id, one.partition) for topic in made.topics for one in topic.partitions]
    return (
        made.session_id,
        made.session_epoch,
        named,
        [one.topic_id for one in made.forgotten_topics_data for _ in one.partitions],
    )


def test_a_session_names_what_is_new_and_what_is_gone() -> None:
    session = ReadSession()
    both = [(ORDERS, 0), (AUDIT, 1)]
    assert request(session, o0=0, a1=0) == (0, 0, both, [])
    assert session.answered(FetchResponse(session_id=7))
    assert request(session, o0=0, a1=0) == (7, 1, [], [])
    assert session.answered(FetchResponse(session_id=7))
    assert request(session, o0=4, a1=0) == (7, 2, [(ORDERS, 0)], [])
    assert session.answered(FetchResponse(session_id=7))
    assert request(session, o0=4) == (7, 3, [], [AUDIT])
    assert session.answered(FetchResponse(session_id=0)), "it gave way, and the answer counts"
    assert request(session, o0=4) == (0, 0, [(ORDERS, 0)], [])


@pytest.mark.parametrize(
    ("code", "session_id"),
    [(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7)],
)
def test_after_any_doubt_everything_is_named(code: ErrorCode, session_id: int) -> None:
    session = ReadSession()
    request(session, o0=0)
    session.answered(FetchResponse(session_id=7))
    request(session, o0=3)
    assert not session.answered(FetchResponse(error_code=code))
    assert request(session, o0=3) == (session_id, 0, [(ORDERS, 0)], [])
    session.answered(FetchResponse(session_id=8))
    request(session, o0=4)
    session.lost()
    assert request(session, o0=4) == (8, 0, [(ORDERS, 0)], [])


def test_a_request_that_was_lost_has_told_nothing() -> None:
    session = ReadSession()
    request(session, o0=0)
    session.lost()
    assert request(session, o0=0, a1=0) == (0, 0, [(ORDERS, 0), (AUDIT, 1)], [])
