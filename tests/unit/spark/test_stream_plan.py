"""A stream between two looks at its topics: limits, new partitions, recreated topics, truncated logs."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from kraft.protocol.fetch import FetchRequest
from kraft.protocol.schemas.metadata import MetadataRequest
from kraft.protocol.schemas.offsets import OffsetForLeaderEpochRequest
from kraft.spark.data_loss import RESTART_STREAM, LossPolicy
from kraft.spark.errors import (
    CheckpointError,
    ConnectorError,
    DataLossError,
    OptionError,
    TopicChangedError,
    UnknownTopicError,
)
from kraft.spark.options import parse_options
from kraft.spark.stream_offsets import Position, StreamOffset, TopicPositions, from_json, to_json
from kraft.spark.stream_plan import StreamPlanner
from kraft.spark.stream_wait import NewsWatch
from partitions.topic_partition import TopicPartition
from tests.support.fake_broker import FakeCluster, FakePartition, FakeTopic
from tests.unit.spark.conftest import Connect, Waiting

Plan = Callable[..., StreamPlanner]


def fill(partition: FakePartition, count: int, value: bytes = b"x") -> None:
    for _ in range(count):
        partition.append([(0, None, value, ())])


@pytest.fixture
def topic(cluster: FakeCluster) -> FakeTopic:
    """orders-0 has 10 records, orders-1 has 30."""
    topic = cluster.create_topic("orders", leaders=(1, 2))
    fill(topic.partitions[0], 10)
    fill(topic.partitions[1], 30)
    return topic


@pytest.fixture
def planner(cluster: FakeCluster, connect: Connect) -> Plan:
    def make(**given: str) -> StreamPlanner:
        if not given.keys() & {"subscribe", "subscribePattern", "assign"}:
            given["subscribe"] = "orders"
        given = {"kafka.bootstrap.servers": cluster.bootstrap, "startingOffsets": "earliest", **given}
        options = parse_options(given, streaming=True)
        return StreamPlanner(connect(), options, LossPolicy(options.fail_on_data_loss, RESTART_STREAM))

    return make


def ends(offset: StreamOffset, name: str = "orders") -> list[int]:
    return [position.offset for position in offset[name].partitions.values()]


def short(plan: StreamPlanner, start: StreamOffset, end: StreamOffset) -> list[str]:
    return [str(part) for part in plan.slices(start, end)]


def test_offsets_survive_the_checkpoint() -> None:
    offset = {
        "b": TopicPositions(bytes(range(16)), {0: Position(5, 1), 10: Position(0, -1), 9: Position(1, 2)}),
        "a": TopicPositions(bytes(16), {}),
    }
    text = json.dumps(to_json(offset))
    assert json.dumps(to_json(from_json(json.loads(text)))) == text
    assert from_json(json.loads(text)) == offset
    assert text.startswith('{"topics": {"a": {"id": "AAAAAAAAAAAAAAAAAAAAAA", "offsets": {}, "epochs": {}}')


@pytest.mark.parametrize(
    "value",
    [
        {"orders": {"0": 5}},
        {"topics": {"orders": {"id": "AAAA", "offsets": {}, "epochs": {}}}},
        {"topics": {"orders": {"id": "A" * 22, "offsets": {"0": 1}, "epochs": {}}}},
        [],
        None,
    ],
)
def test_offsets_of_others_are_refused(value: object) -> None:
    with pytest.raises(CheckpointError, match=r"not one of format kraft.*startingOffsets"):
        from_json(value)


def test_all_that_is_there_and_then_nothing(planner: Plan, topic: FakeTopic) -> None:
    plan = planner()
    start = plan.initial()
    end = plan.next(start, unlimited=True)
    assert short(plan, start, end) == ["orders-0[0, 10)", "orders-1[0, 30)"]
    assert {part.topic_id for part in plan.slices(start, end)} == {topic.topic_id}
    assert plan.next(end, unlimited=True) is end
    assert plan.slices(end, end) == []
    fill(topic.partitions[0], 1)
    assert short(plan, end, plan.next(end, unlimited=True)) == ["orders-0[10, 11)"]


def test_a_stream_starts_at_the_end_unless_told_otherwise(
    planner: Plan, connect: Connect, cluster: FakeCluster, topic: FakeTopic
) -> None:
    options = parse_options(
        {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "orders"}, streaming=True
    )
    assert ends(StreamPlanner(connect(), options, LossPolicy()).initial()) == [10, 30]
    assert ends(planner(startingOffsets='{"orders":{"0":-1,"1":7}}').initial()) == [10, 7]
    with pytest.raises(OptionError, match="holds the offsets from 0 up to 10"):
        planner(startingOffsets='{"orders":{"0":11,"1":7}}').initial()


def test_offsets_are_limited_in_proportion(planner: Plan, topic: FakeTopic) -> None:
    plan = planner(maxOffsetsPerTrigger="8")
    offset = plan.initial()
    seen = []
    while (following := plan.next(offset, unlimited=False)) is not offset:
        offset = following
        seen.append(ends(offset))
    assert seen == [[2, 6], [4, 12], [6, 18], [8, 24], [10, 30]]
    assert ends(plan.next(plan.initial(), unlimited=True)) == [10, 30]


def test_bytes_are_limited_by_a_sample(planner: Plan, topic: FakeTopic) -> None:
    batch = len(topic.partitions[0].batches[0])
    plan = planner(maxBytesPerTrigger=str(batch * 20))
    assert ends(plan.next(plan.initial(), unlimited=False)) == [5, 15]


def test_a_batch_waits_for_enough_records(planner: Plan, topic: FakeTopic, waiting: Waiting) -> None:
    plan = planner(minOffsetsPerTrigger="5", maxTriggerDelay="60s")
    first = plan.next(plan.initial(), unlimited=False)
    fill(topic.partitions[0], 4)
    assert plan.next(first, unlimited=False) is first
    assert plan.latest_ends[TopicPartition("orders", 0)] == 14
    fill(topic.partitions[1], 1)
    second = plan.next(first, unlimited=False)
    assert ends(second) == [14, 31]
    fill(topic.partitions[1], 1)
    assert plan.next(second, unlimited=False) is second
    assert plan.next(second, unlimited=True) is not second
    waiting.now += 60
    assert ends(plan.next(second, unlimited=False)) == [14, 32]


def test_available_now_ends_at_the_moment_it_was_asked_for(planner: Plan, topic: FakeTopic) -> None:
    plan = planner(minOffsetsPerTrigger="100", maxOffsetsPerTrigger="100")
    plan.freeze()
    fill(topic.partitions[0], 5)
    topic.partitions.append(FakePartition(leader=3))
    start = plan.initial()
    end = plan.next(start, unlimited=False)
    assert short(plan, start, end) == ["orders-0[0, 10)", "orders-1[0, 30)"]
    assert plan.next(end, unlimited=False) is end


def test_available_now_from_the_latest_offset_reads_nothing(planner: Plan, topic: FakeTopic) -> None:
    plan = planner(startingOffsets="latest")
    plan.freeze()
    fill(topic.partitions[0], 5)
    start = plan.initial()
    assert ends(start) == [10, 30]
    assert plan.next(start, unlimited=False) is start


def test_available_now_takes_partitions_that_are_new_since_the_checkpoint(
    planner: Plan, topic: FakeTopic
) -> None:
    start = planner().next(planner().initial(), unlimited=True)
    topic.partitions.append(FakePartition(leader=3))
    fill(topic.partitions[2], 2)
    plan = planner(minOffsetsPerTrigger="100")
    plan.freeze()
    end = plan.next(start, unlimited=False)
    assert short(plan, start, end) == ["orders-2[0, 2)"]
    assert plan.next(end, unlimited=False) is end


def test_new_partitions_of_a_running_stream(planner: Plan, topic: FakeTopic, waiting: Waiting) -> None:
    plan = planner()
    start = plan.next(plan.initial(), unlimited=True)
    topic.partitions.append(FakePartition(leader=3))
    fill(topic.partitions[2], 2)
    waiting.now += 1
    end = plan.next(start, unlimited=True)
    assert short(plan, start, end) == ["orders-2[0, 2)"]
    topic.partitions[2].log_start_offset = 1
    with pytest.raises(DataLossError, match="orders-2 is new to this stream, but its first offset is 1"):
        plan.slices(start, end)


def test_new_topics_of_a_pattern(
    planner: Plan, cluster: FakeCluster, topic: FakeTopic, waiting: Waiting
) -> None:
    plan = planner(subscribePattern="o.*")
    start = plan.next(plan.initial(), unlimited=True)
    fill(cluster.create_topic("offers").partitions[0], 3)
    waiting.now += 1
    assert short(plan, start, plan.next(start, unlimited=True)) == ["offers-0[0, 3)"]


def test_a_pattern_without_topics_waits_for_them(
    planner: Plan, cluster: FakeCluster, waiting: Waiting
) -> None:
    plan = planner(subscribePattern="x.*")
    start = plan.initial()
    assert plan.next(start, unlimited=True) is start
    fill(cluster.create_topic("x1").partitions[0], 3)
    waiting.now += 1
    assert short(plan, start, plan.next(start, unlimited=True)) == ["x1-0[0, 3)"]


def test_a_topic_created_anew_is_refused(
    planner: Plan, cluster: FakeCluster, topic: FakeTopic, waiting: Waiting
) -> None:
    plan = planner()
    start = plan.next(plan.initial(), unlimited=True)
    fill(cluster.create_topic("orders").partitions[0], 50)
    waiting.now += 1
    with pytest.raises(
        TopicChangedError, match=r"created anew.*orders-0: 10, orders-1: 30\. Set failOnDataLoss"
    ):
        plan.next(start, unlimited=True)


@pytest.mark.parametrize("epochs_before", [0, 3])
@pytest.mark.parametrize("shape", [(5, 5), (50, 50), (5,), (50,), (50, 50, 50)])
def test_a_topic_created_anew_within_the_age_of_what_is_known_of_it(
    planner: Plan,
    cluster: FakeCluster,
    topic: FakeTopic,
    waiting: Waiting,
    caplog: pytest.LogCaptureFixture,
    epochs_before: int,
    shape: tuple[int, ...],
) -> None:
    """Its leaders answer for the one before: nothing is taken for truncated, nothing of the new one skipped."""
    strict, lossy = planner(), planner(failOnDataLoss="false")
    for _ in range(epochs_before):
        topic.partitions[0].move(1)
    start = strict.next(strict.initial(), unlimited=True)
    assert lossy.next(lossy.initial(), unlimited=True) == start
    anew = cluster.create_topic("orders", leaders=[1, 2, 3][: len(shape)])
    for partition, count in zip(anew.partitions, shape, strict=True):
        fill(partition, count)
    end = start
    with pytest.raises(TopicChangedError, match=r"created anew.* up to the offsets orders-0"):  # noqa: PT012
        for _ in range(2):
            end = strict.next(end, unlimited=True)
            assert {part.topic_id for part in strict.slices(start, end)} <= {topic.topic_id}
            waiting.now += 1
    end = lossy.next(start, unlimited=True)
    waiting.now += 1
    last = lossy.next(end, unlimited=True)
    read = [part for pair in ((start, end), (end, last)) for part in lossy.slices(*pair)]
    of_anew = [str(part) for part in read if part.topic_id == anew.topic_id]
    assert of_anew == [f"orders-{index}[0, {count})" for index, count in enumerate(shape)]
    assert {text.split(":")[0] for text in caplog.messages} == {"Topic orders was deleted and created anew"}


@pytest.mark.parametrize("late", [1, 2, 3])
def test_a_topic_created_anew_of_which_a_broker_has_not_heard(
    planner: Plan, cluster: FakeCluster, topic: FakeTopic, waiting: Waiting, late: int
) -> None:
    """It never does: the others are asked again, with waits between, and not for ever."""
    plan = planner()
    start = plan.next(plan.initial(), unlimited=True)
    cluster.create_topic("orders", leaders=(1,))
    cluster.metadata_of = {late: {"orders": topic}}
    before = len(cluster.asked(MetadataRequest))
    with pytest.raises(ConnectorError, match="orders"):
        plan.next(start, unlimited=True)
    assert len(cluster.asked(MetadataRequest)) - before < 200
    assert waiting.now <= waiting.policy().budget_s + 10


def test_a_batch_of_a_topic_that_was_created_anew_is_planned_as_it_was(
    planner: Plan, cluster: FakeCluster, topic: FakeTopic
) -> None:
    """Planned again after a restart; the readers of its slices tell what is gone."""
    before = planner(failOnDataLoss="false")
    start = before.initial()
    end = before.next(start, unlimited=True)
    cluster.create_topic("orders", leaders=(1,))
    assert short(planner(failOnDataLoss="false"), {}, end) == ["orders-0[0, 10)", "orders-1[0, 30)"]


def test_a_lossy_stream_reads_the_new_topic_from_its_beginning(
    planner: Plan, cluster: FakeCluster, topic: FakeTopic, waiting: Waiting, caplog: pytest.LogCaptureFixture
) -> None:
    plan = planner(failOnDataLoss="false", minOffsetsPerTrigger="1000")
    start = plan.next(plan.initial(), unlimited=True)
    fill(cluster.create_topic("orders").partitions[0], 50)
    waiting.now += 1
    end = plan.next(start, unlimited=False)
    assert short(plan, start, end) == ["orders-0[0, 50)"]
    assert plan.next(end, unlimited=False) is end
    (warning,) = caplog.messages
    assert "orders-0: 10, orders-1: 30" in warning


def test_a_deleted_topic(
    planner: Plan, cluster: FakeCluster, topic: FakeTopic, waiting: Waiting, caplog: pytest.LogCaptureFixture
) -> None:
    strict, lossy = planner(), planner(failOnDataLoss="false")
    start = strict.next(strict.initial(), unlimited=True)
    del cluster.topics["orders"]
    waiting.now += 1
    with pytest.raises(
        TopicChangedError, match=r"does not exist\. The stream has read up to the offsets orders-0: 10"
    ):
        strict.next(start, unlimited=True)
    end = lossy.next(start, unlimited=True)
    assert (end, lossy.slices(start, end)) == ({}, [])
    assert [text.split(".")[0] for text in caplog.messages] == ["Topic orders is gone"]
    waiting.now += 1
    assert lossy.next(end, unlimited=True) is end
    fill(cluster.create_topic("orders").partitions[0], 5)
    waiting.now += 1
    assert short(lossy, end, lossy.next(end, unlimited=True)) == ["orders-0[0, 5)"]
    assert len(caplog.messages) == 1
    with pytest.raises(UnknownTopicError):
        planner(subscribe="nowhere", failOnDataLoss="false").initial()


def test_an_election_without_loss_goes_unnoticed(
    planner: Plan, cluster: FakeCluster, topic: FakeTopic
) -> None:
    plan = planner()
    start = plan.next(plan.initial(), unlimited=True)
    topic.partitions[0].move(3)
    for _ in range(3):
        assert plan.next(start, unlimited=True) is start
    assert len(cluster.asked(OffsetForLeaderEpochRequest)) == 1
    fill(topic.partitions[0], 2)
    end = plan.next(start, unlimited=True)
    assert short(plan, start, end) == ["orders-0[10, 12)"]
    assert end["orders"].partitions == {0: Position(12, 1), 1: Position(30, 0)}


@pytest.mark.parametrize("regrown", [0, 2, 3, 9])
def test_a_log_truncated_below_what_was_read(
    planner: Plan, topic: FakeTopic, regrown: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Under epoch 1 it was cut at 7 and has `regrown` records again: fewer than, as many as, or more than were read."""
    strict, lossy = planner(), planner(failOnDataLoss="false")
    start = strict.next(strict.initial(), unlimited=True)
    partition = topic.partitions[0]
    partition.truncate(7)
    partition.move(2)
    fill(partition, regrown)
    with pytest.raises(
        DataLossError, match=r"orders-0 was truncated at offset 7 .* read up to 10 under epoch 0"
    ):
        strict.next(start, unlimited=True)
    end = lossy.next(start, unlimited=True)
    assert short(lossy, start, end) == ([f"orders-0[7, {7 + regrown})"] if regrown else [])
    following = lossy.next(end, unlimited=True)
    assert lossy.next(following, unlimited=True) is following
    assert len(caplog.messages) == 1


def test_an_end_that_went_back_without_an_election(planner: Plan, topic: FakeTopic) -> None:
    plan = planner()
    start = plan.next(plan.initial(), unlimited=True)
    topic.partitions[1].truncate(20)
    with pytest.raises(DataLossError, match="orders-1 ends at offset 20, but the stream has read up to 30"):
        plan.next(start, unlimited=True)


def test_a_planned_batch_is_planned_alike_after_a_restart(planner: Plan, topic: FakeTopic) -> None:
    plan = planner(maxOffsetsPerTrigger="8")
    start = plan.initial()
    end = plan.next(start, unlimited=False)
    planned = plan.slices(start, end)
    fill(topic.partitions[0], 5)
    topic.partitions[1].move(3)
    restarted = planner()
    kept = [from_json(json.loads(json.dumps(to_json(offset)))) for offset in (start, end)]
    assert restarted.slices(*kept) == planned


def test_splits_of_a_micro_batch(planner: Plan, topic: FakeTopic) -> None:
    plan = planner(maxRecordsPerPartition="10")
    start = plan.initial()
    assert len(plan.slices(start, plan.next(start, unlimited=True))) == 4


def test_a_wait_ends_with_news_or_in_time(
    cluster: FakeCluster, connect: Connect, topic: FakeTopic, waiting: Waiting
) -> None:
    client = connect()
    client.topics(["orders"])
    watch = NewsWatch(client)
    ends = {TopicPartition("orders", index): (topic.topic_id, end) for index, end in enumerate((10, 30))}
    watch.wait(ends)
    assert waiting.now == pytest.approx(0.5)
    fill(topic.partitions[1], 1)
    watch.wait(ends)
    assert waiting.now == pytest.approx(0.5)
    assert all(request.max_wait_ms == 500 for request in cluster.asked(FetchRequest))
    cluster.stop(2)
    watch.wait({TopicPartition("orders", 1): (topic.topic_id, 31)})
    watch.close()
