"""The loop against a fake cluster, its slices written in this process: what is taken, refused, tried again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event, Timer

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, QueryBuilder

from kraft.ingest.model import IncompleteError, SliceResult, SliceTask, Table, TableError, TableProperties
from kraft.ingest.options import IngestOptions
from kraft.ingest.plan import Cut
from kraft.ingest.progress import Progress
from kraft.ingest.run import RETRIES, Ports, ingest
from kraft.ingest.spark_job import JobFailedError
from kraft.ingest.tables import open_table
from kraft.ingest.writing import write_slice
from kraft.protocol.schemas.configs import DescribeConfigsRequest
from kraft.spark.errors import ConnectorError, DataLossError, OptionError, TopicChangedError
from kraft.spark.plan import split
from tests.support.fake_broker import FakeCluster, FakePartition

Rows = list[tuple[int, int, bytes | None]]


class World:
    """A run's ports: tasks run here, waits end at once, and events happen as the test says."""

    def __init__(self, cluster: FakeCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.stop = Event()
        self.sentences: list[str] = []
        self.jobs: list[Sequence[SliceTask]] = []
        self.before_job: Callable[[int], None] = lambda number: None
        self.after_job: Callable[[int], None] = lambda number: None
        self.after_failure: Callable[[int], None] = lambda count: None
        self.now_s = 0.0

    def run(self, *topics: str, **changes: object) -> Progress:
        options = IngestOptions(
            topics=topics or ("orders",),
            folder=self.folder,
            bootstrap=self.cluster.bootstrap,
            properties=TableProperties("delta", "bytes", None),
            trigger_s=0.0,
        )
        ports = Ports(jobs=self._work, watcher=self, stop=self.stop, compact=self._compact, clock=self._clock)
        return ingest(replace(options, **changes), ports)  # type: ignore[arg-type]

    def rows(self) -> Rows:
        """Partition, offset and value of each row of the table."""
        table = ds.dataset(DeltaTable(str(self.folder)).file_uris()).to_table()
        columns = (table.column(name).to_pylist() for name in ("partition", "offset", "value"))
        return sorted(zip(*columns, strict=True))

    def _work(self, tasks: Sequence[SliceTask]) -> list[SliceResult]:
        self.jobs.append(tasks)
        self.before_job(len(self.jobs))
        results = [write_slice(task) for task in tasks]
        self.after_job(len(self.jobs))
        return results

    def _clock(self) -> float:
        self.now_s += 1.0
        return self.now_s

    def _compact(self, table: Table) -> None:
        if len(self.jobs) >= 2:
            self.stop.set()

    # ---- the watcher

    def begun(self, progress: Progress) -> None: ...
    def planned(self, cut: Cut) -> None: ...
    def committed(self, next_commit_s: float | None) -> None: ...

    def failed(self, error: ConnectorError, retry_s: float) -> None:
        self.sentences.append(str(error))
        self.after_failure(len(self.sentences))

    def told(self, sentence: str) -> None:
        self.sentences.append(sentence)


def fill(partition: FakePartition, count: int) -> None:
    for _ in range(count):
        partition.append([(0, b"k", str(partition.log_end_offset).encode(), ())])


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=2) as fake:
        topic = fake.create_topic("orders", leaders=(1, 2))
        fill(topic.partitions[0], 10)
        fill(topic.partitions[1], 30)
        yield fake


@pytest.fixture
def world(cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr("kraft.ingest.run.FIRST_BACKOFF_S", 0.0)
    return World(cluster, tmp_path / "table")


def stored(*counts: int) -> Rows:
    return [
        (index, offset, str(offset).encode()) for index, count in enumerate(counts) for offset in range(count)
    ]


def taken(partition: int, start: int, end: int) -> dict[str, object]:
    counts = {"records": end - start, "control": 0, "aborted": 0, "holes": 0}
    return {"topic": "orders", "partition": partition, "from": start, "to": end, **counts}


def test_all_up_to_the_captured_end_is_taken(world: World) -> None:
    world.after_job = lambda number: fill(world.cluster.topics["orders"].partitions[0], 5)
    progress = world.run()
    assert world.rows() == stored(10, 30)
    assert progress.document() == {
        "topics": ["orders"],
        "rows": 40,
        "dead_letters": 0,
        "late_rows": 0,
        "files": 2,
        "partitions": [taken(0, 0, 10), taken(1, 0, 30)],
        "version": 0,
    }


def test_the_next_run_goes_on_where_the_table_ends(world: World) -> None:
    world.run()
    fill(world.cluster.topics["orders"].partitions[1], 3)
    progress = world.run()
    assert world.rows() == stored(10, 33)
    assert (progress.rows, progress.version) == (3, 1)
    assert [(part["from"], part["to"]) for part in progress.document()["partitions"]] == [(10, 10), (30, 33)]


def test_nothing_new_runs_no_job_and_makes_no_commit(world: World) -> None:
    world.run()
    progress = world.run()
    assert (len(world.jobs), progress.rows, progress.version) == (1, 0, 0)
    assert progress.summary("table") == "nothing new for table: it is at version 0"


def test_an_empty_topic_makes_no_table(world: World) -> None:
    world.cluster.create_topic("empty")
    progress = world.run("empty")
    assert (world.jobs, progress.version) == ([], None)
    assert progress.document()["partitions"][0]["to"] == 0


def test_a_continuous_run_takes_what_comes_until_it_is_stopped(world: World) -> None:
    world.after_job = lambda number: fill(world.cluster.topics["orders"].partitions[0], 5)
    progress = world.run(continuous=True)
    assert world.rows() == stored(15, 30)
    assert (progress.commits, progress.version) == (2, 1)


def test_new_partitions_join(world: World) -> None:
    def grow(number: int) -> None:
        if number == 1:
            world.cluster.topics["orders"].partitions.append(FakePartition(1))
            fill(world.cluster.topics["orders"].partitions[2], 4)
            world.now_s += 10

    world.after_job = grow
    world.run(continuous=True, trigger_s=2.0)
    assert world.rows() == stored(10, 30, 4)


def test_a_partition_that_lost_its_beginning_between_two_runs_is_told(world: World) -> None:
    """It was empty and known then; a new one would begin at offset 0."""
    topic = world.cluster.topics["orders"]
    topic.partitions.append(FakePartition(1))
    world.run()
    fill(topic.partitions[2], 5)
    topic.partitions[2].log_start_offset = 3
    with pytest.raises(DataLossError, match=r"orders-2.* offsets from 0 up to 3 were deleted"):
        world.run()
    assert world.rows() == stored(10, 30)


def test_a_failed_job_is_tried_again_with_other_names(world: World) -> None:
    def fail(number: int) -> None:
        if number <= 2:
            raise JobFailedError("A worker was killed.")

    world.after_job = fail
    progress = world.run()
    assert world.rows() == stored(10, 30)
    assert progress.failures == 2
    names = [task.name for tasks in world.jobs for task in tasks]
    assert len(set(names)) == len(names)
    assert len(list(world.folder.glob("*.parquet"))) == 2


def test_a_job_that_keeps_failing_ends_the_run(world: World) -> None:
    def fail(number: int) -> None:
        raise JobFailedError("A worker was killed.")

    world.before_job = fail
    with pytest.raises(JobFailedError):
        world.run()
    assert len(world.jobs) == RETRIES + 1
    assert not (world.folder / "_delta_log").exists()


def test_a_stop_ends_the_run_after_the_commit(world: World) -> None:
    world.before_job = lambda number: world.stop.set()
    assert world.run(continuous=True).commits == 1
    assert world.rows() == stored(10, 30)


def test_a_stop_while_the_job_fails_leaves_the_cut_to_the_next_run(world: World) -> None:
    def fail(number: int) -> None:
        world.stop.set()
        raise JobFailedError("The JVM got the signal, too.")

    world.before_job = fail
    assert world.run().commits == 0
    world.before_job = lambda number: None
    world.stop.clear()
    world.run()
    assert world.rows() == stored(10, 30)


def test_a_continuous_run_outlives_an_absence_of_brokers(world: World) -> None:
    """Each failure is the client's patience at its end; the run plans anew until the brokers are back."""

    def lose(number: int) -> None:
        if number == 1:
            fill(world.cluster.topics["orders"].partitions[0], 5)
            for broker_id in (1, 2):
                world.cluster.stop(broker_id)

    def restart(count: int) -> None:
        if count == 3:
            for broker_id in (1, 2):
                world.cluster.start(broker_id)

    world.after_job, world.after_failure = lose, restart
    progress = world.run(continuous=True, client_options={"fetchOffset.numRetries": "1"})
    assert world.rows() == stored(15, 30)
    assert progress.failures == 3


def test_a_stop_ends_the_wait_for_brokers(world: World) -> None:
    """Without it the run would wait for a minute."""

    def lose(number: int) -> None:
        for broker_id in (1, 2):
            world.cluster.stop(broker_id)
        Timer(0.2, world.stop.set).start()

    world.after_job = lose
    assert world.run(continuous=True).commits == 1
    assert any("Ended while brokers did not answer" in sentence for sentence in world.sentences)


def test_a_topic_that_is_made_anew_in_mid_run_is_told_and_its_new_life_taken_by_the_next(
    world: World,
) -> None:
    def recreate(number: int) -> None:
        if number == 1:
            fill(world.cluster.create_topic("orders", leaders=(1, 2)).partitions[0], 2)
            world.now_s += 10

    world.after_job = recreate
    with pytest.raises(TopicChangedError, match="deleted and created anew"):
        world.run(continuous=True)
    world.after_job = lambda number: None
    world.run()
    assert world.rows() == sorted(stored(10, 30) + stored(2))
    assert any("is not the one that the table has rows of" in sentence for sentence in world.sentences)


def test_a_truncation_below_what_the_table_has_is_told(world: World) -> None:
    world.run()
    partition = world.cluster.topics["orders"].partitions[1]
    partition.truncate(20)
    partition.move(2)
    fill(partition, 15)
    with pytest.raises(DataLossError, match="truncated at offset 20"):
        world.run()


def test_holes_are_refused_unless_the_topic_is_compacted(world: World) -> None:
    topic = world.cluster.topics["orders"]
    topic.partitions[0].append([(0, b"k", b"14", ())], gap=4)
    with pytest.raises(
        IncompleteError, match=r"orders-0\[0, 15\) has 4 offsets without a record: \[10, 14\)"
    ):
        world.run()
    topic.configs["cleanup.policy"] = "delete,compact"
    progress = world.run()
    assert [part["holes"] for part in progress.document()["partitions"]] == [4, 0]
    assert len(world.rows()) == 41


def test_holes_are_allowed_by_word(world: World) -> None:
    world.cluster.topics["orders"].partitions[0].append([(0, b"k", b"14", ())], gap=4)
    world.run(allow_holes=True)
    assert len(world.rows()) == 41
    assert not world.cluster.asked(DescribeConfigsRequest)


def test_a_table_of_another_kind_is_refused(world: World) -> None:
    world.run()
    with pytest.raises(
        TableError, match=r"is a table with --format delta --values bytes, and not with .* string"
    ):
        world.run(properties=TableProperties("delta", "string", None))


def test_a_folder_of_somebody_else_is_refused(world: World) -> None:
    world.folder.mkdir()
    (world.folder / "notes.txt").touch()
    with pytest.raises(TableError, match="is not empty"):
        world.run()


def test_a_run_that_never_committed_leaves_the_folder_free_for_another_kind(world: World) -> None:
    def die(number: int) -> None:
        raise KeyboardInterrupt

    world.after_job = die
    with pytest.raises(KeyboardInterrupt):
        world.run()
    world.after_job = lambda number: None
    world.run(properties=TableProperties("delta", "string", None))
    assert len(DeltaTable(str(world.folder)).file_uris()) == 2
    assert len(list(world.folder.glob("*.parquet"))) == 2


def test_a_large_backlog_is_taken_in_several_commits_of_several_slices(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraft.ingest.plan.MAX_CUT_BYTES", 20_000)
    monkeypatch.setattr("kraft.ingest.plan.UNSAMPLED_CUT_OFFSETS", 100)
    monkeypatch.setattr("kraft.ingest.plan.split", partial(split, max_bytes=4_000))
    fill(world.cluster.topics["orders"].partitions[0], 390)
    fill(world.cluster.topics["orders"].partitions[1], 370)
    progress = world.run()
    assert progress.commits > 2
    assert len(world.jobs[0]) > 2, "ranges are split"
    assert world.rows() == stored(400, 400)


JSON = TableProperties("delta", "json", None)


def documents(partition: FakePartition, *texts: str) -> None:
    for text in texts:
        partition.append([(0, None, text.encode(), ())])


def json_rows(folder: Path) -> list[dict[str, object]]:
    """The fields, and whether the row is in error, in the order of offsets."""
    rows = pa.table(
        QueryBuilder().register("rows", DeltaTable(str(folder))).execute("SELECT * FROM rows")
    ).to_pylist()
    own = {"key", "topic", "partition", "offset", "timestamp", "timestampType", "headers", "_error", "_raw"}
    return [
        {name: value for name, value in row.items() if name not in own} | {"error": row["_error"] is not None}
        for row in sorted(rows, key=lambda row: (row["partition"], row["offset"]))
    ]


def test_fields_of_json_become_columns_and_what_does_not_fit_is_kept_aside(world: World) -> None:
    first, second = world.cluster.create_topic("events", leaders=(1, 2)).partitions
    documents(first, '{"id": 1}', "no json")
    documents(second, '{"id": 2, "city": "Rome"}', '{"id": "three"}')
    progress = world.run("events", properties=JSON)
    assert progress.dead_letters == 2
    documents(first, '{"id": 4, "paid": true}')
    world.run("events", properties=JSON)
    assert json_rows(world.folder) == [
        {"id": 1, "city": None, "paid": None, "error": False},
        {"id": None, "city": None, "paid": None, "error": True},
        {"id": 4, "city": None, "paid": True, "error": False},
        {"id": 2, "city": "Rome", "paid": None, "error": False},
        {"id": None, "city": None, "paid": None, "error": True},
    ]


def test_a_field_grows_inside(world: World) -> None:
    first, _ = world.cluster.create_topic("events", leaders=(1, 2)).partitions
    documents(first, '{"place": {"lat": 1.5}}')
    world.run("events", properties=JSON)
    documents(first, '{"place": {"lat": 2.5, "lon": 3.5}}')
    world.run("events", properties=JSON)
    assert json_rows(world.folder) == [
        {"place": {"lat": 1.5, "lon": None}, "error": False},
        {"place": {"lat": 2.5, "lon": 3.5}, "error": False},
    ]


def test_slices_that_disagree_about_a_field_are_written_again(world: World) -> None:
    """The lowest partition's type wins, whichever worker was faster."""
    first, second = world.cluster.create_topic("events", leaders=(1, 2)).partitions
    documents(first, '{"id": "one"}')
    documents(second, '{"id": 2}')
    assert world.run("events", properties=JSON).dead_letters == 1
    assert [len(tasks) for tasks in world.jobs] == [2, 1]
    assert json_rows(world.folder) == [{"id": "one", "error": False}, {"id": None, "error": True}]
    assert len(list(world.folder.glob("*.parquet"))) == 2


def test_a_schema_adds_columns_and_changes_none(world: World) -> None:
    first, _ = world.cluster.create_topic("events", leaders=(1, 2)).partitions
    documents(first, '{"id": 1}')
    world.run("events", properties=JSON, schema_text="id BIGINT")
    documents(first, '{"id": 2, "city": "Rome"}')
    with pytest.raises(OptionError, match="--schema says string of id, but the table has int64"):
        world.run("events", properties=JSON, schema_text="id STRING, city STRING")
    world.run("events", properties=JSON, schema_text="id BIGINT, city STRING")
    assert json_rows(world.folder) == [
        {"id": 1, "city": None, "error": False},
        {"id": 2, "city": "Rome", "error": False},
    ]


def test_rows_go_to_folders_by_the_time_of_their_records(world: World) -> None:
    partition = world.cluster.create_topic("events").partitions[0]
    hour_ms = 3_600_000
    for hour in (0, 1, 30):
        partition.append([(hour * hour_ms, None, b"x", ())])
    world.run("events", properties=TableProperties("delta", "bytes", "hour"))
    files = {path.relative_to(world.folder).parent.as_posix() for path in world.folder.rglob("*.parquet")}
    assert files == {"date=1970-01-01/hour=0", "date=1970-01-01/hour=1", "date=1970-01-02/hour=6"}
    assert sorted(file.partition_values["hour"] or "" for file in open_table(world.folder).files()) == [
        "0",
        "1",
        "6",
    ]
