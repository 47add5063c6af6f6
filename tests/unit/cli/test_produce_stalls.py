"""When `kraft produce` tells that brokers acknowledge nothing, and what it says."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest

from kraft.cli.produce.sending import error_codes
from kraft.cli.produce.stalls import NO_BROKER, NO_PRODUCER_ID, STALL_S, UNASSIGNED, Stalls
from kraft.protocol.errors import ErrorCode

NOT_ENOUGH = "Broker: Not enough in-sync replicas"
STORAGE = "Broker: Disk error when trying to access log file on disk"
CODES = {NOT_ENOUGH: ErrorCode.NOT_ENOUGH_REPLICAS, STORAGE: ErrorCode.KAFKA_STORAGE_ERROR}
LATEST_S = 10
"""By then a person has been told, whatever it is."""


def log_line(partition: int, text: str, topic: str = "t") -> str:
    """What librdkafka logs of a batch that is refused."""
    return (
        f"[thrd:h:1/1]: h:1/1: {topic} [{partition}]: MessageSet with 3 message(s) (MsgId 1, BaseSeq 0) encountered"
        f" error: {text} (actions Refresh,Retry,MsgNotPersisted)"
    )


def statistics(
    waiting: dict[int, int],
    *,
    leaders: dict[int, int] | None = None,
    up: tuple[int, ...] = (1, 2),
    eos: str = "",
    sent: dict[int, int] | None = None,
) -> dict[str, Any]:
    """What librdkafka counts: records that wait, by partition; the leader of partition 0 is broker 1, and so on."""
    partitions = {
        str(p): {
            "leader": (leaders or {}).get(p, -1 if p == UNASSIGNED else p + 1),
            "msgq_cnt": count if p == UNASSIGNED else 0,
            "txmsgs": (sent or {}).get(p, 0),
            "msgs": 0 if p == UNASSIGNED else count,
        }
        for p, count in waiting.items()
    }
    brokers = {str(n): {"nodeid": n, "state": "UP" if n in up else "CONNECT"} for n in (1, 2)}
    state = {"eos": {"idemp_state": eos}} if eos else {}
    return {"brokers": brokers, "topics": {"t": {"partitions": partitions}}, **state}


class Clock:
    """Seconds, what was told in each, and what was reported of each partition so far."""

    def __init__(self) -> None:
        self.stalls = Stalls("t", CODES, 30)
        self.now_s = 0.0
        self.reported: Counter[int] = Counter()

    def acknowledge(self, partition: int) -> None:
        self.reported[partition] += 1
        self.stalls.acknowledged(partition)

    def fail(self, partition: int) -> None:
        self.reported[partition] += 1
        self.stalls.failed(partition)

    def pass_(
        self, seconds: int, counted: dict[str, Any], refusals: dict[int, str] | None = None
    ) -> list[str]:
        """`counted`: what waits, beside what was reported."""
        told = []
        counted = copy.deepcopy(counted)
        for number, facts in counted["topics"]["t"]["partitions"].items():
            facts["msgs"] += self.reported[int(number)]
        for _ in range(seconds):
            for partition, text in (refusals or {}).items():
                self.stalls.logged(log_line(partition, text), self.now_s)
            told.append(self.stalls.observe(counted, self.now_s))
            self.now_s += 1
        return [news for news in told if news is not None]


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_records_that_are_acknowledged_are_no_news(clock: Clock) -> None:
    for _ in range(30):
        clock.acknowledge(0)
        assert clock.pass_(1, statistics({0: 5})) == []
    assert clock.pass_(30, statistics({0: 0})) == []


def test_a_refusal_is_told_once_and_its_end(clock: Clock) -> None:
    refused = statistics({0: 5, 1: 2})
    (told,) = clock.pass_(LATEST_S, refused, {0: NOT_ENOUGH, 1: NOT_ENOUGH})
    assert told == (
        "nothing acknowledged for 5 s: NOT_ENOUGH_REPLICAS: Fewer replicas are in sync than the topic requires;"
        " nothing was written (partition 0, 1); each line is tried for 30 s"
    )
    assert clock.pass_(60, refused, {0: NOT_ENOUGH, 1: NOT_ENOUGH}) == []
    clock.acknowledge(0)
    clock.acknowledge(1)
    assert clock.pass_(1, statistics({0: 0, 1: 0})) == ["the brokers acknowledge again"]
    assert clock.pass_(60, statistics({0: 0, 1: 0})) == []
    (again,) = clock.pass_(LATEST_S, refused, {0: STORAGE})
    assert "KAFKA_STORAGE_ERROR" in again


def test_another_reason_is_told(clock: Clock) -> None:
    refused = statistics({0: 5})
    assert len(clock.pass_(LATEST_S, refused, {0: NOT_ENOUGH})) == 1
    (told,) = clock.pass_(LATEST_S, refused, {0: STORAGE})
    assert "KAFKA_STORAGE_ERROR: The disk failed" in told
    (told,) = clock.pass_(LATEST_S, statistics({0: 5}, up=()), {0: STORAGE})
    assert NO_BROKER in told


def test_one_partition_that_stands_still_is_told_while_others_move(clock: Clock) -> None:
    told = []
    for _ in range(LATEST_S):
        clock.acknowledge(1)
        told += clock.pass_(1, statistics({0: 5, 1: 5}), {0: STORAGE})
    (news,) = told
    assert "KAFKA_STORAGE_ERROR" in news
    assert "(partition 0)" in news
    clock.acknowledge(1)
    clock.fail(0)
    assert clock.pass_(1, statistics({0: 0, 1: 5})) == [], "the records of partition 0 have only timed out"


def test_whoever_does_not_answer_is_named(clock: Clock) -> None:
    clock.stalls.client_error("h:1/bootstrap: Connect failed: Connection refused")
    (told,) = clock.pass_(LATEST_S, statistics({UNASSIGNED: 5}, up=()))
    assert f"5 s: {NO_BROKER} (h:1/bootstrap: Connect failed: Connection refused); each line" in told
    clock.stalls.client_error("h:2/bootstrap: Connect failed: Connection refused")
    assert clock.pass_(LATEST_S, statistics({UNASSIGNED: 5}, up=())) == [], "the same trouble"
    (told,) = clock.pass_(LATEST_S, statistics({UNASSIGNED: 5}))
    assert "5 s: the brokers know no topic t; each line" in told.replace("20 s", "5 s")
    clock.acknowledge(0)
    assert clock.pass_(1, statistics({0: 5})) == ["the brokers acknowledge again"]


@pytest.mark.parametrize(
    ("counted", "reason"),
    [
        (statistics({0: 1}, leaders={0: -1}), "the partition has no leader (partition 0)"),
        (statistics({0: 1}, up=(2,)), "broker 1, the leader, does not answer (partition 0)"),
        (statistics({0: 1}), "broker 1, the leader, acknowledges nothing (partition 0)"),
        (statistics({0: 1}, eos="WaitPID"), NO_PRODUCER_ID),
        (statistics(dict.fromkeys(range(20), 1), leaders=dict.fromkeys(range(20), -1)), "7, … 20 in all"),
    ],
)
def test_why_nothing_is_acknowledged(clock: Clock, counted: dict[str, Any], reason: str) -> None:
    (told,) = clock.pass_(LATEST_S, counted)
    assert reason in told


def test_the_reason_outlives_the_time_of_a_record(clock: Clock) -> None:
    clock.pass_(1, statistics({0: 5}), {0: STORAGE})
    reason = clock.stalls.reason_of(0)
    assert reason is not None
    assert reason.startswith("KAFKA_STORAGE_ERROR")
    clock.acknowledge(0)
    clock.pass_(1, statistics({0: 5}))
    assert clock.stalls.reason_of(0) is None
    clock.pass_(LATEST_S, statistics({0: 5}, up=()))
    assert clock.stalls.reason_of(0) == NO_BROKER


def test_other_topics_and_errors_of_the_client_itself_are_no_reason(clock: Clock) -> None:
    clock.stalls.logged(log_line(0, STORAGE, topic="other"), 0)
    clock.stalls.logged(log_line(0, "Local: Broker transport failure"), 0)
    clock.stalls.logged("[thrd:h:1/1]: h:1/1: t [0]: MessageSet with 3 message(s) delivered", 0)
    assert clock.stalls.reason_of(0) is None


def test_librdkafka_words_errors_so() -> None:
    codes = error_codes()
    assert codes.items() >= CODES.items()
    assert codes["Broker: Unknown topic or partition"] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_nothing_is_told_before_its_time(clock: Clock) -> None:
    assert clock.pass_(int(STALL_S), statistics({0: 5}), {0: STORAGE}) == []


def test_which_purged_records_were_sent_before(clock: Clock) -> None:
    """Of 10 records 4 were sent, and 1 of these acknowledged; then all are given up."""
    clock.acknowledge(0)
    for _ in range(9):
        clock.fail(0)
    clock.pass_(1, statistics({0: 0}, sent={0: 4}))
    assert clock.stalls.sent_of_purged(0, 9) == 3
    assert clock.stalls.sent_of_purged(0, 6) == 0, "the three before have failed"
    clock.pass_(1, statistics({0: 0}, sent={0: 400}))
    assert clock.stalls.sent_of_purged(0, 9) == 9
