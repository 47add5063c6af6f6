"""`kraft produce --audit` and `kraft audit`, on real nodes."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from threading import Event
from typing import Any

import pytest

pytest.importorskip("deltalake")

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from kraft.auditing.messages import CountMessage
from kraft.cli.app import run
from kraft.ingest.model import Format, TableProperties
from kraft.ingest.options import IngestOptions
from kraft.ingest.run import Ports, ingest
from kraft.ingest.writing import write_slice
from kraft.spark.errors import ConnectorError
from tests.support.node_processes import created, until
from tests.support.real_clients import QUIET
from tests.support.source_tree import ROOT
from tests.support.threaded_cluster import ThreadedCluster

CALL_S = 90.0
LINES = "".join(f"line {number}\n" for number in range(300))
MINUTE_MS = 60_000
BEGAN_MS = 1_700_000_040_000
"""The start of a minute, long ago."""

Kraft = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def cluster(shared_cluster: ThreadedCluster) -> ThreadedCluster:
    return shared_cluster


@pytest.fixture
def kraft(cluster: ThreadedCluster, capfd: pytest.CaptureFixture[str]) -> Kraft:
    """Runs a command: exit code, standard output, standard error."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run([*arguments, "--bootstrap-server", cluster.bootstrap])
        return code, *capfd.readouterr()

    return call


@pytest.fixture
def lines(tmp_path: Path) -> str:
    path = tmp_path / "lines"
    path.write_text(LINES)
    return str(path)


def send(cluster: ThreadedCluster, topic: str, value: bytes, time_ms: int = BEGAN_MS) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **QUIET})
    producer.produce(topic, value, timestamp=time_ms)
    assert producer.flush(CALL_S) == 0


def audited(kraft: Kraft, topic: str, *options: str) -> tuple[int, Any]:
    code, output, errors = kraft("audit", topic, "--json", *options)
    assert output, errors
    return code, json.loads(output)


def verdicts(document: Any) -> dict[int, str]:
    return {
        (window["window_start_ms"] - BEGAN_MS) // MINUTE_MS: window["verdict"]
        for window in document["windows"]
    }


def at(minute: int) -> str:
    return str(BEGAN_MS + minute * MINUTE_MS)


def test_what_was_counted_is_stored(cluster: ThreadedCluster, kraft: Kraft, lines: str) -> None:
    topic, counts = cluster.create_topic("audited", 3), cluster.create_topic("counts", 2)
    produced = "produce", topic, lines, "--audit", "--audit-topic", counts
    for minute in (0, 3, 0):  # the last are late
        code, output, errors = kraft(*produced, "--timestamp", at(minute), "--json")
        assert (code, json.loads(output)["counted"]) == (0, 300), errors
    code, document = audited(kraft, topic, "--audit-topic", counts)
    assert (code, document["verdict"]) == (0, "equal")
    assert [(window["produced"], window["stored"]) for window in document["windows"]] == [
        (600, 600),
        (300, 300),
    ]
    assert [sum(window["hosts"].values()) for window in document["windows"]] == [600, 300]
    assert (document["ingested"], document["notes"]) == (None, [])
    code, document = audited(kraft, topic, "--audit-topic", counts, "--from-time", at(1))
    assert (code, verdicts(document)) == (0, {3: "equal"})

    send(cluster, topic, b"by somebody who does not count")
    code, document = audited(kraft, topic, "--audit-topic", counts)
    assert (code, verdicts(document)) == (1, {0: "uncounted", 3: "equal"})
    code, output, _ = kraft("audit", topic, "--audit-topic", counts)
    assert code == 1
    assert output.splitlines() == [
        "window                produced  stored  verdict",
        "2023-11-14T22:14:00Z  600       601     uncounted",
        "2023-11-14T22:17:00Z  300       300     equal",
        f"{topic}: 900 produced, 901 stored",
        "2 windows: 1 equal, 1 different",
    ]

    lost = CountMessage("produced", "web-1", "p", topic, BEGAN_MS + 3 * MINUTE_MS, MINUTE_MS, 2, 0)
    for _ in range(2):  # the second is the same message once more
        send(cluster, counts, lost.encode())
    send(cluster, counts, b"no count")
    code, document = audited(kraft, topic, "--audit-topic", counts)
    assert (code, verdicts(document)) == (1, {0: "uncounted", 3: "lost"})
    assert document["notes"] == ["1 messages of the audit topic are no counts"]


def test_a_topic_that_nobody_counts_cannot_be_judged(
    cluster: ThreadedCluster, kraft: Kraft, lines: str
) -> None:
    topic = cluster.create_topic("uncounted")
    code, _, errors = kraft("audit", topic, "--audit-topic", "no-such-topic")
    assert (code, "is empty, and no producer has counted in no-such-topic" in errors) == (3, True)
    assert kraft("produce", topic, lines)[0] == 0
    code, _, errors = kraft("audit", topic, "--audit-topic", "no-such-topic")
    assert (code, "no producer has counted records" in errors) == (3, True)
    assert kraft("audit", "no-such-topic")[0] == 3


def test_lines_of_aborted_transactions_do_not_count(
    cluster: ThreadedCluster, kraft: Kraft, lines: str, tmp_path: Path
) -> None:
    topic, counts = cluster.create_topic("transactions"), cluster.create_topic("counts")
    broken = tmp_path / "broken"
    broken.write_text("k:v\n" * 25 + "no separator\n")
    produced = "--audit", "--audit-topic", counts, "--transactional-id", topic, "--transaction-records", "10"
    timed = "--timestamp", at(0), "--key-separator", ":"
    code, output, errors = kraft("produce", topic, str(broken), *timed, *produced, "--json")
    assert (code, json.loads(output)["counted"]) == (1, 20), errors
    code, document = audited(kraft, topic, "--audit-topic", counts)
    assert (code, document["produced"], document["stored"]) == (0, 20, 20)


def test_records_behind_an_open_transaction(cluster: ThreadedCluster, kraft: Kraft, lines: str) -> None:
    topic, counts = cluster.create_topic("held"), cluster.create_topic("counts")
    writer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": topic, **QUIET})
    writer.init_transactions(CALL_S)
    writer.begin_transaction()
    writer.produce(topic, "open", timestamp=BEGAN_MS)
    assert writer.flush(CALL_S) == 0
    assert kraft("produce", topic, lines, "--timestamp", at(0), "--audit", "--audit-topic", counts)[0] == 0
    code, document = audited(kraft, topic, "--audit-topic", counts)
    assert (code, verdicts(document), document["stored"]) == (3, {0: "open"}, 0)
    assert document["notes"] == ["an open transaction holds records back: they cannot be counted yet"]
    writer.abort_transaction(CALL_S)

    def settled() -> bool:
        code, document = audited(kraft, topic, "--audit-topic", counts)
        return (code, verdicts(document), document["notes"]) == (0, {0: "equal"}, [])

    until(settled, "the marker is written")


def test_the_log_s_own_times(cluster: ThreadedCluster, kraft: Kraft, lines: str) -> None:
    topic = cluster.create_topic("appended", message_timestamp_type="LogAppendTime")
    counts = cluster.create_topic("counts")
    assert kraft("produce", topic, lines, "--audit", "--audit-topic", counts, "--timestamp", at(0))[0] == 0
    code, document = audited(kraft, topic, "--audit-topic", counts)
    assert (code, document["produced"], document["stored"]) == (0, 300, 300)
    assert 0 not in verdicts(document)


def test_a_compacted_topic_may_have_fewer_records(
    cluster: ThreadedCluster, kraft: Kraft, tmp_path: Path
) -> None:
    topic, counts = (
        cluster.create_topic("compacted", cleanup_policy="compact"),
        cluster.create_topic("counts"),
    )
    keyed = tmp_path / "keyed"
    keyed.write_text("k:1\n" * 30)
    options = "--key-separator", ":", "--timestamp", at(0), "--audit", "--audit-topic", counts
    assert kraft("produce", topic, str(keyed), *options)[0] == 0
    code, document = audited(kraft, topic, "--audit-topic", counts)
    assert (code, document["notes"]) == (
        0,
        ["the topic is compacted: fewer records may be stored than were produced"],
    )
    more = CountMessage("produced", "web-1", "p", topic, BEGAN_MS, MINUTE_MS, 2, 0)
    send(cluster, counts, more.encode())
    code, document = audited(kraft, topic, "--audit-topic", counts)
    assert (code, verdicts(document)) == (3, {0: "unknown"})


def test_counts_that_are_refused(cluster: ThreadedCluster, kraft: Kraft, lines: str) -> None:
    topic, counts = cluster.create_topic("audited"), cluster.create_topic("counts", max_message_bytes="50")
    code, output, errors = kraft("produce", topic, lines, "--audit", "--audit-topic", counts, "--json")
    assert (code, json.loads(output)["counted"], json.loads(output)["acknowledged"]) == (1, 0, 300)
    assert "the counts of 300 lines were not acknowledged" in errors


def test_the_audit_topic_is_made_when_it_is_not_there(
    cluster: ThreadedCluster, kraft: Kraft, lines: str
) -> None:
    topic = cluster.create_topic("audited")
    counts = f"{topic}-counts"
    code, _, errors = kraft(
        "produce", topic, lines, "--audit", "--audit-topic", counts, "--audit-window", "PT1H"
    )
    assert (code, f"made the topic {counts} for the counts" in errors) == (0, True)
    assert len(cluster.partitions(counts)) == 1
    code, document = audited(kraft, topic, "--audit-topic", counts)
    assert (code, document["window_ms"]) == (0, 3_600_000)


@pytest.mark.parametrize(
    "arguments", [("--audit-topic", "x"), ("--audit-window", "PT1M"), ("--audit", "--audit-window", "1m")]
)
def test_wrong_usage(kraft: Kraft, lines: str, arguments: tuple[str, ...]) -> None:
    assert kraft("produce", "any", lines, *arguments)[0] == 2


def test_a_table_that_somebody_else_wrote(
    cluster: ThreadedCluster, kraft: Kraft, lines: str, tmp_path: Path
) -> None:
    topic, counts = cluster.create_topic("ingested", 2), cluster.create_topic("counts")
    for minute in (0, 1):
        produced = "produce", topic, lines, "--audit", "--audit-topic", counts, "--timestamp", at(minute)
        assert kraft(*produced)[0] == 0
    rows = table_of(cluster, topic)
    table = tmp_path / "table"
    table.mkdir()
    pq.write_table(rows, table / "part-0.parquet")
    (table / "_staging").mkdir()
    pq.write_table(rows, table / "_staging" / "part-1.parquet")
    options = "--audit-topic", counts, "--table", str(table)
    code, document = audited(kraft, topic, *options)
    assert (code, document["ingested"], set(verdicts(document).values())) == (0, 600, {"equal"})

    pq.write_table(rows.slice(0, 500), table / "part-0.parquet")
    code, document = audited(kraft, topic, *options)
    assert (code, set(verdicts(document).values())) == (0, {"equal", "behind"})
    pq.write_table(pa.concat_tables([rows.slice(0, 3), rows.slice(4)]), table / "part-0.parquet")
    code, document = audited(kraft, topic, *options)
    assert (code, verdicts(document)[0]) == (1, "not ingested")
    pq.write_table(pa.concat_tables([rows, rows.slice(4, 1)]), table / "part-0.parquet")
    code, document = audited(kraft, topic, *options)
    assert (code, verdicts(document)[0]) == (1, "doubled")
    code, _, errors = kraft("audit", topic, "--table", str(tmp_path / "nowhere"))
    assert (code, "there is no folder" in errors) == (2, True)
    code, _, errors = kraft("audit", topic, "--client-option", "subscribe=other")
    assert (code, "takes kafka.… options" in errors) == (2, True)


class Unwatched:
    """A watcher that nobody looks at."""

    def begun(self, progress: object) -> None: ...
    def planned(self, cut: object) -> None: ...
    def committed(self, next_commit_s: float | None) -> None: ...
    def failed(self, error: ConnectorError, retry_s: float) -> None: ...
    def told(self, sentence: str) -> None: ...


def ingest_all(
    cluster: ThreadedCluster,
    topic: str,
    table: Path,
    table_format: Format,
    partition_by: str | None = None,
) -> None:
    options = IngestOptions(
        (topic,), table, cluster.bootstrap, TableProperties(table_format, "bytes", partition_by)
    )
    jobs = lambda tasks: [write_slice(task) for task in tasks]  # noqa: E731
    ingest(options, Ports(jobs, Unwatched(), Event(), lambda _table: None))


@pytest.mark.parametrize("table_format", ["delta", "parquet"])
def test_a_table_of_kraft_ingest(
    cluster: ThreadedCluster, kraft: Kraft, lines: str, tmp_path: Path, table_format: Format
) -> None:
    topic, counts = cluster.create_topic("ingested", 2), cluster.create_topic("counts")
    table = tmp_path / "table"

    def produce(minute: int) -> None:
        produced = "produce", topic, lines, "--audit", "--audit-topic", counts, "--timestamp", at(minute)
        assert kraft(*produced)[0] == 0

    produce(0)
    ingest_all(cluster, topic, table, table_format)
    produce(1)
    options = "--audit-topic", counts, "--table", str(table)
    code, document = audited(kraft, topic, *options)
    assert (code, verdicts(document)) == (0, {0: "equal", 1: "behind"})
    produce(0)
    ingest_all(cluster, topic, table, table_format)
    code, document = audited(kraft, topic, *options)
    assert (code, verdicts(document), document["ingested"]) == (0, {0: "equal", 1: "equal"}, 900)

    victim = max(table.glob("*.parquet"), key=lambda path: pq.read_metadata(path).num_rows)
    rows = pq.read_table(victim)
    pq.write_table(rows.slice(1), victim)
    code, document = audited(kraft, topic, *options)
    assert (code, "not ingested" in verdicts(document).values()) == (1, True)


@pytest.mark.parametrize("table_format", ["delta", "parquet"])
def test_a_topic_that_was_made_anew(
    cluster: ThreadedCluster, kraft: Kraft, lines: str, tmp_path: Path, table_format: Format
) -> None:
    """The rows of its former life are told, and all windows without them judged."""
    topic, counts = cluster.create_topic("ingested", 2), cluster.create_topic("counts")
    table = tmp_path / "table"
    produced = "produce", topic, lines, "--audit", "--audit-topic", counts, "--timestamp"
    options = "--audit-topic", counts, "--table", str(table)
    assert kraft(*produced, at(0))[0] == 0
    ingest_all(cluster, topic, table, table_format, partition_by="topic")
    assert audited(kraft, topic, *options)[0] == 0

    cluster.admin.delete_topics([topic])[topic].result(CALL_S)
    created(cluster.admin, lambda: NewTopic(topic, 2, 3))
    for partition in (0, 1):
        cluster.leader(topic, partition)
    assert kraft(*produced, at(5))[0] == 0
    code, document = audited(kraft, topic, *options)
    assert (code, verdicts(document)) == (3, {0: "former", 5: "behind"})
    ingest_all(cluster, topic, table, table_format, partition_by="topic")
    code, document = audited(kraft, topic, *options)
    assert (code, verdicts(document), document["ingested"]) == (0, {0: "former", 5: "equal"}, 300)
    assert [window["former"] for window in document["windows"]] == [300, 0]
    assert sum(former["to"] for former in document["former"]) == 300
    assert document["former"][0]["topic_id"] in document["notes"][-1]

    victim = next(
        path
        for path in sorted(table.rglob("*.parquet"))
        if pq.read_table(path, columns=["timestamp"])["timestamp"].cast(pa.int64())[0].as_py() // 1000
        > BEGAN_MS + MINUTE_MS
    )
    with pq.ParquetFile(victim) as opened:
        rows = opened.read()
    pq.write_table(rows.slice(1), victim)
    code, document = audited(kraft, topic, *options)
    assert (code, verdicts(document)) == (1, {0: "unknown", 5: "not ingested"})
    assert "kraft ingest audit names them" in document["notes"][-1]


def test_folders_that_are_no_table(
    cluster: ThreadedCluster, kraft: Kraft, lines: str, tmp_path: Path
) -> None:
    topic = cluster.create_topic("ingested", 1)
    assert kraft("produce", topic, lines, "--timestamp", at(0))[0] == 0
    ingest_all(cluster, topic, tmp_path / "lake" / "orders", "parquet")
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other" / "a.parquet")
    for folder, reason in (
        ("lake", f"Parquet files below it, in {tmp_path / 'lake' / 'orders'}: name the folder"),
        ("empty", "neither a log nor Parquet files"),
        ("other", "has no column topic, partition, offset, timestamp"),
        ("nowhere", "there is no folder"),
    ):
        code, _, errors = kraft("audit", topic, "--table", str(tmp_path / folder))
        assert (code, reason in errors) == (2, True), errors


def table_of(cluster: ThreadedCluster, topic: str) -> pa.Table:
    """All records in the columns of the connector, by time."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none", **QUIET})
    rows = []
    for partition in (0, 1):
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), CALL_S)
        consumer.assign([TopicPartition(topic, partition, 0)])
        while end and (not rows or rows[-1][1:3] != (partition, end - 1)):
            message = consumer.poll(CALL_S)
            rows.append((topic, partition, message.offset(), message.timestamp()[1] * 1000))
    consumer.close()
    schema = pa.schema(
        {
            "topic": pa.string(),
            "partition": pa.int32(),
            "offset": pa.int64(),
            "timestamp": pa.timestamp("us", tz="UTC"),
        }
    )
    rows.sort(key=lambda row: row[3])
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)],
        schema,
    )


def test_the_wrapper_of_a_client(
    cluster: ThreadedCluster, kraft: Kraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.create_topic("wrapped", 2)
    names = cluster.admin.list_topics(timeout=CALL_S).topics
    if "kraft-audit" not in names:
        assert (
            kraft("topics", "create", "kraft-audit", "--partitions", "1", "--replication-factor", "3")[0] == 0
        )
    monkeypatch.setattr(sys, "stdin", StringIO(LINES))
    runpy.run_path(str(ROOT / "examples" / "audited_producer.py"))["main"]([cluster.bootstrap, topic])
    code, document = audited(kraft, topic)
    assert (code, document["produced"], document["stored"]) == (0, 300, 300)
