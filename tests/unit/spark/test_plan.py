"""The cut and its slices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.spark.data_loss import LossPolicy
from kraft.spark.errors import OptionError, UnknownTopicError
from kraft.spark.options import parse_options
from kraft.spark.plan import plan, split
from kraft.spark.slice_reader import PartitionSlice
from tests.support.fake_broker import FakeCluster
from tests.unit.spark.conftest import Connect


@pytest.fixture
def plan_of(cluster: FakeCluster, connect: Connect):  # type: ignore[no-untyped-def]
    """Plans with these options."""

    def make(**options: str) -> list[PartitionSlice]:
        given = {"kafka.bootstrap.servers": cluster.bootstrap, **options}
        options = parse_options(given)
        return plan(connect(), options, LossPolicy(fail=options.fail_on_data_loss))

    return make


@pytest.fixture(autouse=True)
def topics(cluster: FakeCluster) -> None:
    """orders-0 holds 5 to 8, orders-1 0 to 2, orders-2 nothing; other-0 holds 0."""
    orders = cluster.create_topic("orders", leaders=(1, 2, 3))
    for partition, start, end in zip(orders.partitions, (5, 0, 0), (8, 2, 0), strict=True):
        partition.log_start_offset = start
        for _ in range(start, end):
            partition.append([(0, None, b"x", ())])
    orders.partitions[1].leader_epoch = 4
    cluster.create_topic("other").partitions[0].append([(0, None, b"x", ())])
    cluster.create_topic("__internal", is_internal=True).partitions[0].append([(0, None, b"x", ())])


def short(parts: list[PartitionSlice]) -> list[str]:
    return [str(part) for part in parts]


def test_all_of_a_topic(plan_of, cluster: FakeCluster) -> None:  # type: ignore[no-untyped-def]
    parts = plan_of(subscribe="orders")
    assert short(parts) == ["orders-0[5, 8)", "orders-1[0, 2)"]
    assert {part.topic_id for part in parts} == {cluster.topics["orders"].topic_id}
    assert [part.leader_epoch for part in parts] == [0, 4]


@pytest.mark.parametrize(
    ("options", "slices"),
    [
        ({"subscribe": "other,orders"}, ["orders-0[5, 8)", "orders-1[0, 2)", "other-0[0, 1)"]),
        ({"subscribePattern": "o.*"}, ["orders-0[5, 8)", "orders-1[0, 2)", "other-0[0, 1)"]),
        ({"subscribePattern": "ther"}, ["other-0[0, 1)"]),
        ({"subscribePattern": "er$"}, ["other-0[0, 1)"]),
        ({"assign": '{"orders":[1,2],"other":[0]}'}, ["orders-1[0, 2)", "other-0[0, 1)"]),
        (
            {
                "assign": '{"orders":[0,1]}',
                "startingOffsets": '{"orders":{"0":-2,"1":1}}',
                "endingOffsets": '{"orders":{"0":6,"1":-1}}',
            },
            ["orders-0[5, 6)", "orders-1[1, 2)"],
        ),
        ({"assign": '{"orders":[2]}'}, []),
        ({"subscribePattern": "x.*"}, []),
        (
            {
                "subscribe": "orders",
                "failOnDataLoss": "false",
                "startingOffsets": '{"orders":{"0":1,"1":1,"2":9}}',
                "endingOffsets": '{"orders":{"0":6,"1":99,"2":9}}',
            },
            ["orders-0[5, 6)", "orders-1[1, 2)"],
        ),
        (
            {"subscribe": "orders", "maxRecordsPerPartition": "2"},
            ["orders-0[5, 6)", "orders-0[6, 8)", "orders-1[0, 2)"],
        ),
        (
            {"subscribe": "orders", "minPartitions": "4"},
            ["orders-0[5, 6)", "orders-0[6, 7)", "orders-0[7, 8)", "orders-1[0, 1)", "orders-1[1, 2)"],
        ),
    ],
)
def test_slices(plan_of, options: dict[str, str], slices: list[str]) -> None:  # type: ignore[no-untyped-def]
    assert short(plan_of(**options)) == slices


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"assign": '{"orders":[3]}'}, "orders has no partition 3"),
        (
            {"subscribe": "other", "startingOffsets": '{"other":{"0":2}}'},
            "other-0 is 2, but .* from 0 up to 1",
        ),
        ({"subscribe": "other", "endingOffsets": '{"other":{"0":2}}'}, "other-0 is 2, but .* from 0 up to 1"),
        ({"assign": '{"orders":[0]}', "startingOffsets": '{"orders":{"0":4}}'}, "from 5 up to 8"),
        (
            {
                "assign": '{"orders":[0]}',
                "startingOffsets": '{"orders":{"0":7}}',
                "endingOffsets": '{"orders":{"0":6}}',
            },
            "orders-0 starts at offset 7, behind its end, 6",
        ),
        ({"subscribe": "orders", "startingOffsets": '{"orders":{"0":5}}'}, "orders-1, orders-2 missing"),
        (
            {"subscribe": "other", "startingOffsets": '{"other":{"0":0,"9":0}}'},
            "not read or do not exist: other-9",
        ),
    ],
)
def test_impossible_plans(plan_of, options: dict[str, str], sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(OptionError, match=sentence):
        plan_of(**options)


def test_an_unknown_topic(plan_of) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UnknownTopicError, match="nowhere"):
        plan_of(subscribe="orders,nowhere")


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 100_000)), max_size=6),
    st.none() | st.integers(1, 60),
    st.integers(50, 200_000),
)
def test_split_is_exact(sizes: list[tuple[int, int]], min_slices: int | None, max_records: int) -> None:
    ranges = [
        PartitionSlice("t", bytes(16), index, start, start + size, 0)
        for index, (start, size) in enumerate(sizes)
    ]
    parts = split(ranges, min_slices=min_slices, max_records=max_records)
    for part in ranges:
        pieces = [piece for piece in parts if piece.partition == part.partition]
        assert [piece.start for piece in pieces] == [part.start, *(piece.end for piece in pieces[:-1])]
        assert pieces[-1].end == part.end
        assert all(0 < piece.end - piece.start <= max_records for piece in pieces)
    assert len(parts) >= min(min_slices or 0, sum(size for _, size in sizes))


def test_offsets_by_time(plan_of, cluster: FakeCluster) -> None:  # type: ignore[no-untyped-def]
    times = cluster.create_topic("times", leaders=(1, 2))
    for timestamp in (10, 20, 30):
        times.partitions[0].append([(timestamp, None, b"x", ())])
    times.partitions[1].append([(15, None, b"x", ())])
    assert short(plan_of(subscribe="times", startingTimestamp="15")) == ["times-0[1, 3)", "times-1[0, 1)"]
    assert short(plan_of(subscribe="times", endingTimestamp="15")) == ["times-0[0, 1)"]
    both = {"startingOffsetsByTimestamp": '{"times":{"0":11,"1":0}}', "endingTimestamp": "30"}
    assert short(plan_of(subscribe="times", **both)) == ["times-0[1, 2)", "times-1[0, 1)"]
    with pytest.raises(OptionError, match="times-1 has no record from time 16 ms on"):
        plan_of(subscribe="times", startingTimestamp="16")
    latest = {"startingTimestamp": "16", "startingOffsetsByTimestampStrategy": "latest"}
    assert short(plan_of(subscribe="times", **latest)) == ["times-0[1, 3)"]
    with pytest.raises(OptionError, match="times-1 missing"):
        plan_of(subscribe="times", startingOffsetsByTimestamp='{"times":{"0":0}}')


def test_what_a_lossy_read_leaves_out_is_warned_of(plan_of, caplog: pytest.LogCaptureFixture) -> None:  # type: ignore[no-untyped-def]
    plan_of(assign='{"orders":[0]}', startingOffsets='{"orders":{"0":4}}', failOnDataLoss="false")
    (warning,) = caplog.messages
    assert warning.startswith(
        "startingOffsets of orders-0 is 4, but the partition holds the offsets from 5 up to 8."
    )


def test_splits_by_bytes(plan_of, cluster: FakeCluster) -> None:  # type: ignore[no-untyped-def]
    """200 batches of one record each: 100 small ones, 100 large ones."""
    partition = cluster.create_topic("large").partitions[0]
    for index in range(200):
        partition.append([(0, None, bytes(100 if index < 100 else 10_000), ())])
    total = sum(map(len, partition.batches))
    parts = plan_of(subscribe="large", maxBytesPerPartition=str(total // 10))
    assert 8 <= len(parts) <= 14
    assert [part.start for part in parts] == [0, *(part.end for part in parts[:-1])]
    assert parts[-1].end == 200
    assert len(plan_of(subscribe="large")) == 1
    assert len(plan_of(subscribe="large", maxRecordsPerPartition="50")) == 4


def test_large_ranges_are_split_unasked(
    plan_of, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("kraft.spark.plan.DEFAULT_MAX_BYTES_PER_SLICE", 10_000)
    partition = cluster.create_topic("large").partitions[0]
    for _ in range(200):
        partition.append([(0, None, bytes(1000), ())])
    assert len(plan_of(subscribe="large")) > 10
