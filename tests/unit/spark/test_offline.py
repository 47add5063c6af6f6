"""`path=`: stopped data directories, written by the log itself, read as a cluster would be."""

from __future__ import annotations

import fcntl
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from kraft.runtime.disk import RealDisk
from kraft.runtime.read_only_disk import ReadOnlyDisk
from kraft.spark.data_loss import LossPolicy
from kraft.spark.errors import ConnectorError, CorruptDataError, DataLossError, OptionError, UnknownTopicError
from kraft.spark.offline.cluster import plan_offline, read_offline
from kraft.spark.offline.directories import DirectoryInUseError, find_replicas
from kraft.spark.offline.transactions import decided
from kraft.spark.options import parse_options
from partitions.log.config import LogConfig
from partitions.log.log import PartitionLog
from partitions.log.node_logs.data_directory import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)
from partitions.log.node_logs.meta_properties import MetaProperties, encode_meta_properties
from partitions.log.node_logs.offset_checkpoint import encode_offset_checkpoint
from partitions.records.builder import build_batch
from partitions.records.control import ControlType
from partitions.records.markers import build_marker
from partitions.topic_partition import TopicPartition
from tests.support.logs import halt, lead

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"
ORDERS = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))
SEGMENTS = LogConfig(segment_bytes=600, index_interval_bytes=100)
"""A few batches each."""
OPEN_TIME = 1_000_000

Writes = Callable[[PartitionLog, int], None]


class Directory:
    """One data directory, written by a broker that is not there any more."""

    def __init__(self, path: Path, cluster_id: str = CLUSTER) -> None:
        path.mkdir()
        self.path = str(path)
        self.ends: dict[TopicPartition, int] = {}
        meta = MetaProperties(cluster_id, 1, "AAAAAAAAAAAAAAAAAAAAAg")
        (path / "meta.properties").write_bytes(encode_meta_properties(meta))
        (path / ".lock").touch()

    def write(
        self,
        *writes: Writes,
        partition: TopicPartition = ORDERS,
        topic_id: bytes = TOPIC_ID,
        closed: bool = True,
    ) -> PartitionLog:
        """A log of these appends, each with the leader epoch of its place. `closed`: as by a broker that stops."""
        log = PartitionLog.open(
            RealDisk(),
            self.folder(partition),
            partition,
            SEGMENTS,
            now_ms=lambda: 0,
            halt=halt,
            topic_id=topic_id,
        )
        lead(log, 0)
        for write in writes:
            write(log, 0)
        end = self.ends[partition] = log.log_end_offset
        if closed:
            log.close()
            self.checkpoint(RECOVERY_POINTS, end, partition)
            self.checkpoint(HIGH_WATERMARKS, end, partition)
            Path(self.path, CLEAN_SHUTDOWN_FILE).write_text('{"version": 0, "brokerEpoch": 3}')
        return log

    def folder(self, partition: TopicPartition = ORDERS) -> str:
        return f"{self.path}/{partition}"

    def checkpoint(self, name: str, offset: int | None, partition: TopicPartition = ORDERS) -> None:
        """Names this one partition (None: none at all)."""
        content = encode_offset_checkpoint({} if offset is None else {partition: offset})
        Path(self.path, name).write_bytes(content)

    def logs(self) -> list[Path]:
        return sorted(Path(self.folder()).glob("*.log"))


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path / "one")


def values(*texts: str, producer: int = -1, codec: int = 0, time: int = OPEN_TIME) -> Writes:
    """One batch; of a transaction if a producer is named."""

    def write(log: PartitionLog, epoch: int) -> None:
        records = [(time + number, b"k", text.encode(), (("h", b"v"),)) for number, text in enumerate(texts)]
        batch = build_batch(
            records,
            codec=codec,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            is_transactional=producer >= 0,
        )
        log.append_as_leader(batch, leader_epoch=epoch, origin="coordinator")

    return write


def ends(producer: int, kind: ControlType) -> Writes:
    def write(log: PartitionLog, epoch: int) -> None:
        batch = build_marker(producer, 0, kind, coordinator_epoch=1, timestamp=OPEN_TIME)
        log.append_as_leader(batch, leader_epoch=epoch, origin="coordinator")

    return write


def leads(epoch: int, records: int = 1) -> Writes:
    """The replica becomes the leader of another epoch, and writes in it."""

    def write(log: PartitionLog, _: int) -> None:
        lead(log, epoch)
        batch = build_batch([(OPEN_TIME, None, b"epoch-%d" % epoch, ())] * records)
        log.append_as_leader(batch, leader_epoch=epoch, origin="coordinator")

    return write


def read(*directories: Directory, loss: bool = True, **options: str) -> list[str]:
    """The values, through all that goes between driver and executors."""
    given = {"path": ",".join(one.path for one in directories), "subscribe": "orders", **options}
    if "assign" in given or "subscribePattern" in given:
        del given["subscribe"]
    parsed = parse_options(given)
    policy = LossPolicy(fail=loss)
    slices = pickle.loads(pickle.dumps(plan_offline(parsed, policy)))
    return [
        value.as_py().decode()
        for one in slices
        for batch in read_offline(parsed, policy, one)
        for value in batch["value"]
    ]


def numbered(count: int, start: int = 0) -> list[Writes]:
    """Batches of three, in turn in every codec."""
    return [
        values(*(f"v{3 * number + place}" for place in range(3)), codec=number % 5)
        for number in range(start, start + count)
    ]


def named(count: int) -> list[str]:
    return [f"v{number}" for number in range(count)]


# ---- what is read


def test_every_segment_the_last_one_too(directory: Directory) -> None:
    directory.write(*numbered(20))
    assert len(directory.logs()) > 3
    assert read(directory) == named(60)
    columns = plan_offline(parse_options({"path": directory.path, "subscribe": "orders"}), LossPolicy())
    assert {one.part.topic_id for one in columns} == {TOPIC_ID}


@pytest.mark.parametrize(
    "options", [{"maxRecordsPerPartition": "7"}, {"maxBytesPerPartition": "300"}, {"minPartitions": "9"}]
)
def test_splits_by_offsets_and_bytes_join(directory: Directory, options: dict[str, str]) -> None:
    directory.write(*numbered(20))
    parsed = parse_options({"path": directory.path, "subscribe": "orders", **options})
    assert len(plan_offline(parsed, LossPolicy())) > 5
    assert read(directory, **options) == named(60)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes() + bytes(800)),
        lambda path: path.write_bytes(bytes([0, 0, 0, 1, 0, 0, 0, 9] * 20)),
        lambda path: path.write_bytes(path.read_bytes()[::-1]),
    ],
    ids=["missing", "empty", "preallocated", "wrong", "reversed"],
)
def test_an_index_is_a_hint(directory: Directory, spoil: Callable[[Path], object]) -> None:
    directory.write(*numbered(20))
    for path in Path(directory.folder()).glob("*.index"):
        spoil(path)
    assert read(directory, maxRecordsPerPartition="4") == named(60)


def test_nothing_from_the_high_watermark_on(directory: Directory) -> None:
    directory.write(*numbered(20))
    directory.checkpoint(HIGH_WATERMARKS, 33)
    assert read(directory) == named(33)


def test_deleted_records_stay_deleted(directory: Directory) -> None:
    directory.write(*numbered(20))
    directory.checkpoint(LOG_START_OFFSETS, 31)
    assert read(directory) == named(60)[31:]
    with pytest.raises(OptionError, match="from 31 up to 60"):
        read(directory, startingOffsets='{"orders":{"0":30}}')


def test_a_log_that_was_killed_in_the_middle_of_a_write(directory: Directory) -> None:
    log = directory.write(*numbered(20), closed=False)
    directory.checkpoint(HIGH_WATERMARKS, 57)
    directory.checkpoint(RECOVERY_POINTS, 0)
    log.abandon()
    torn = directory.logs()[-1]
    torn.write_bytes(torn.read_bytes()[:-5])
    assert read(directory) == named(57)


def test_times_and_offsets_of_the_range(directory: Directory) -> None:
    directory.write(
        values("a", "b"), values("c", "d", time=OPEN_TIME + 500), values("e", time=OPEN_TIME + 900)
    )
    assert read(directory, startingTimestamp=str(OPEN_TIME + 1), endingTimestamp=str(OPEN_TIME + 900)) == [
        "b",
        "c",
        "d",
    ]
    assert read(directory, startingOffsets='{"orders":{"0":1}}', endingOffsets='{"orders":{"0":3}}') == [
        "b",
        "c",
    ]


def test_topics_by_pattern_and_partitions_by_assignment(directory: Directory) -> None:
    directory.write(values("a"))
    directory.write(values("b"), partition=TopicPartition("orders", 1))
    directory.write(values("internal"), partition=TopicPartition("__consumer_offsets", 1))
    Path(directory.path, HIGH_WATERMARKS).write_bytes(encode_offset_checkpoint(directory.ends))
    os.mkdir(f"{directory.path}/orders-2.0123456789abcdef-delete")
    for name in ("__cluster_metadata-0", "orders-007", "orders-", "a-folder-of-somebody-else"):
        os.mkdir(f"{directory.path}/{name}")
    assert read(directory, subscribePattern=".*") == ["a", "b"]
    assert read(directory, assign='{"orders":[1]}') == ["b"]
    with pytest.raises(UnknownTopicError, match="nowhere"):
        read(directory, subscribe="nowhere")


def test_the_columns_are_those_of_the_online_path(directory: Directory) -> None:
    directory.write(values("a"))
    parsed = parse_options({"path": directory.path, "subscribe": "orders", "includeHeaders": "true"})
    (one,) = plan_offline(parsed, LossPolicy())
    (batch,) = read_offline(parsed, LossPolicy(), one)
    (row,) = batch.to_pylist()
    assert row.pop("timestamp").timestamp() == OPEN_TIME / 1000
    assert row == {
        "key": b"k",
        "value": b"a",
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"v"}],
    }


# ---- transactions

STORY: Sequence[Writes] = (
    values("a1", "a2", producer=7),
    values("plain"),
    values("b1", producer=8),
    values("a3", producer=7),
    ends(7, ControlType.ABORT),
    values("c1", producer=7),
    ends(8, ControlType.COMMIT),
    *numbered(12),
    ends(7, ControlType.COMMIT),
    values("d1", producer=8),
    *numbered(12, start=12),
    ends(8, ControlType.ABORT),
    values("last"),
    values("open", producer=9),
    values("behind"),
)
COMMITTED = ["plain", "b1", "c1", *named(72), "last"]


@pytest.mark.parametrize("options", [{}, {"maxRecordsPerPartition": "3"}])
def test_read_committed(directory: Directory, options: dict[str, str]) -> None:
    directory.write(*STORY)
    committed = {"kafka.isolation.level": "read_committed", **options}
    assert read(directory, **committed) == COMMITTED
    assert read(directory, **options)[:5] == ["a1", "a2", "plain", "b1", "a3"]
    assert list(Path(directory.folder()).glob("*.txnindex"))


def test_read_committed_below_a_high_watermark_that_has_not_seen_a_marker(directory: Directory) -> None:
    log = directory.write(*STORY)
    marker = 7  # of the first abort, behind a1 a2 plain b1 a3
    assert log.log_end_offset > marker
    directory.checkpoint(HIGH_WATERMARKS, 5)
    assert read(directory, **{"kafka.isolation.level": "read_committed"}) == []
    directory.checkpoint(HIGH_WATERMARKS, 6)
    assert read(directory, **{"kafka.isolation.level": "read_committed"}) == ["plain"]


@pytest.mark.parametrize("recovery_point", [0, 40])
def test_read_committed_after_a_kill(directory: Directory, recovery_point: int) -> None:
    """Indexes and snapshots beyond the recovery point are not believed."""
    log = directory.write(*STORY, closed=False)
    directory.checkpoint(HIGH_WATERMARKS, log.log_end_offset)
    directory.checkpoint(RECOVERY_POINTS, recovery_point)
    log.abandon()
    for path in Path(directory.folder()).glob("*.txnindex"):
        if int(path.stem) >= recovery_point:
            path.unlink()
    assert read(directory, **{"kafka.isolation.level": "read_committed"}) == COMMITTED


@pytest.mark.parametrize("suffix", ["txnindex", "snapshot"])
def test_read_committed_with_damaged_files_beside_the_batches(directory: Directory, suffix: str) -> None:
    directory.write(*STORY)
    paths = list(Path(directory.folder()).glob(f"*.{suffix}"))
    assert paths
    for path in paths:
        path.write_bytes(path.read_bytes()[:-1])
    assert read(directory, **{"kafka.isolation.level": "read_committed"}) == COMMITTED


def test_transactions_of_flushed_segments_come_from_their_indexes(directory: Directory) -> None:
    directory.write(*STORY)
    sizes = [path.stat().st_size for path in directory.logs()]
    assert len(sizes) > 3
    (replica,) = find_replicas([directory.path], "orders".__eq__)[ORDERS]
    passed: list[int] = []
    found = decided(ReadOnlyDisk(passed.append), replica, replica.end_offset)
    assert [one.producer_id for one in found.aborted] == [7, 8]
    assert sum(passed) < sum(sizes) / 2


# ---- replicas


def test_of_several_replicas_the_newest_epoch_then_the_highest_watermark(tmp_path: Path) -> None:
    one, two, three = (Directory(tmp_path / name) for name in ("one", "two", "three"))
    one.write(values("a"), leads(1, records=4))
    two.write(values("a"), leads(1), leads(3))
    two.checkpoint(HIGH_WATERMARKS, 2)
    three.write(values("a"), leads(1), leads(3))
    for order in ((one, two, three), (three, two, one)):
        assert read(*order) == ["a", "epoch-1", "epoch-3"]
    assert read(one, two) == ["a", "epoch-1"]
    assert read(one) == ["a", *["epoch-1"] * 4]


def test_two_topic_ids_under_one_name(tmp_path: Path) -> None:
    one, two = Directory(tmp_path / "one"), Directory(tmp_path / "two")
    one.write(values("a"))
    two.write(values("b"), topic_id=bytes(range(1, 17)))
    with pytest.raises(OptionError, match=r"deleted and made anew.*Leave out the directory"):
        read(one, two)


def test_directories_of_two_clusters(tmp_path: Path) -> None:
    one, two = Directory(tmp_path / "one"), Directory(tmp_path / "two", cluster_id="BBBBBBBBBBBBBBBBBBBBBQ")
    one.write(values("a"))
    two.write(values("a"))
    with pytest.raises(OptionError, match="one cluster at a time"):
        read(one, two)


# ---- what is refused, or told


def test_a_directory_in_use(directory: Directory) -> None:
    directory.write(values("a"))
    lock = RealDisk().lock(f"{directory.path}/.lock")
    with pytest.raises(DirectoryInUseError, match=r"a running broker uses .*Stop the broker"):
        read(directory)
    lock.release()
    assert read(directory) == ["a"]


def test_a_directory_that_apache_kafka_uses(directory: Directory) -> None:
    """Java takes another kind of lock, which excludes other processes only."""
    directory.write(values("a"))
    program = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX);"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, f"{directory.path}/.lock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(DirectoryInUseError):
            read(directory)
        holder.stdin.close()


def test_a_broker_cannot_start_while_a_slice_is_read(directory: Directory) -> None:
    directory.write(*numbered(20))
    parsed = parse_options({"path": directory.path, "subscribe": "orders"})
    (one,) = plan_offline(parsed, LossPolicy())
    with closing(read_offline(parsed, LossPolicy(), one)) as batches:
        next(batches)  # type: ignore[call-overload]
        with pytest.raises(BlockingIOError):
            RealDisk().lock(f"{directory.path}/.lock")
    RealDisk().lock(f"{directory.path}/.lock").release()


def test_a_copy_without_a_lock_file(directory: Directory) -> None:
    directory.write(values("a"))
    Path(directory.path, ".lock").unlink()
    assert read(directory) == ["a"]
    assert not Path(directory.path, ".lock").exists()


@pytest.mark.parametrize(
    ("spoil", "error", "sentence"),
    [
        (lambda one: one.checkpoint(HIGH_WATERMARKS, None), DataLossError, "no high watermark of orders-0"),
        (lambda one: one.checkpoint(HIGH_WATERMARKS, 99), DataLossError, "ends at offset 60, below .* 99"),
        (lambda one: one.logs()[1].unlink(), DataLossError, "a file is missing or damaged"),
        (
            lambda one: Path(one.path, HIGH_WATERMARKS).write_bytes(b"0\n2\norders"),
            CorruptDataError,
            "replication-offset-checkpoint announces 2 entries",
        ),
        (
            lambda one: Path(one.path, "meta.properties").unlink(),
            OptionError,
            "no data directory of a broker",
        ),
        (
            lambda one: one.logs()[0].rename(str(one.logs()[0]) + ".swap"),
            CorruptDataError,
            "ended while it compacted",
        ),
        (
            lambda one: Path(one.folder(), "partition.metadata").write_bytes(b"version: 0\n"),
            CorruptDataError,
            "does not hold a version 0 and a topic_id",
        ),
    ],
)
def test_what_makes_a_directory_unfit(
    directory: Directory, spoil: Callable[[Directory], object], error: type[ConnectorError], sentence: str
) -> None:
    directory.write(*numbered(20))
    spoil(directory)
    with pytest.raises(error, match=sentence):
        read(directory)


def test_what_is_left_with_fail_on_data_loss_false(
    directory: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    directory.write(*numbered(20))
    directory.logs()[1].unlink()
    left = read(directory, loss=False)
    assert 0 < len(left) < 60
    assert "a file is missing or damaged" in caplog.text


def test_holes_of_a_compacted_topic_are_no_loss(directory: Directory) -> None:
    directory.write(*numbered(20))
    directory.checkpoint(CLEANER_OFFSETS, 50)
    directory.logs()[1].unlink()
    assert 0 < len(read(directory)) < 60


def test_a_damaged_batch_is_named(directory: Directory) -> None:
    directory.write(*numbered(20))
    path = directory.logs()[0]
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptDataError, match="orders-0: the data fetched at offset 0 cannot be read"):
        read(directory)


def test_a_partition_without_a_folder(directory: Directory) -> None:
    directory.write(values("b"), partition=TopicPartition("orders", 2))
    with pytest.raises(DataLossError, match="none of the directories holds orders-0, orders-1"):
        read(directory)
    assert read(directory, assign='{"orders":[2]}') == ["b"]


def test_an_executor_that_does_not_see_the_directory(directory: Directory, tmp_path: Path) -> None:
    directory.write(values("a"))
    parsed = parse_options({"path": directory.path, "subscribe": "orders"})
    (one,) = plan_offline(parsed, LossPolicy())
    os.rename(directory.path, tmp_path / "elsewhere")
    with pytest.raises(OptionError, match=r"is no directory here\. Executors must see it"):
        list(read_offline(parsed, LossPolicy(), one))


@pytest.mark.parametrize(
    ("options", "streaming", "sentence"),
    [
        ({"path": " , "}, False, "Option path is empty"),
        ({"path": "/data", "kafka.bootstrap.servers": "127.0.0.1:9092"}, False, "not both"),
        ({"path": "/data"}, True, "for batches"),
    ],
)
def test_options(options: dict[str, str], streaming: bool, sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        parse_options({"subscribe": "orders", **options}, streaming=streaming)


def test_logs_are_loaded_for_path_only() -> None:
    program = (
        "import sys; import kraft.spark.source;"
        "print([name for name in sys.modules if name.startswith(('partitions.log', 'leader_epoch'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_fcntl_and_flock_are_two_locks(tmp_path: Path) -> None:
    """What `held` relies on: both kinds on one descriptor do not exclude each other."""
    path = tmp_path / "lock"
    path.touch()
    with path.open("r") as file:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
