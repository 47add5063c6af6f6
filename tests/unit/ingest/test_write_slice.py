"""What a worker makes of a slice: every committed record in one file, and every offset accounted for."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kraft.ingest import data_files
from kraft.ingest.model import Layout, SliceResult, SliceTask, Values
from kraft.ingest.table_columns import table_schema
from kraft.ingest.values.schema_files import parse_schema
from kraft.ingest.writing import write_slice
from kraft.spark.errors import ConnectorError, DataLossError
from kraft.spark.slice_reader import PartitionSlice
from tests.support.fake_broker import FakeCluster, FakePartition

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NOON_MS = 1_767_268_800_000
"""2026-01-01 12:00 UTC."""


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as fake:
        fake.create_topic("orders")
        yield fake


@pytest.fixture
def partition(cluster: FakeCluster) -> FakePartition:
    return cluster.topics["orders"].partitions[0]


class Writing:
    """Writes the whole partition."""

    def __init__(self, cluster: FakeCluster, folder: Path) -> None:
        self._cluster = cluster
        self.folder = folder
        self.slices = 0

    def __call__(
        self,
        values: Values = "bytes",
        *,
        by: str | None = None,
        max_file_bytes: int = 1 << 20,
        fields: str | None = None,
        schema: pa.Schema | None = None,
    ) -> SliceResult:
        topic = self._cluster.topics["orders"]
        end = topic.partitions[0].end
        given = None if fields is None else parse_schema(fields)
        schema = schema or table_schema(values, by, given)
        layout = Layout(values, by, max_file_bytes, schema, infer=values == "json" and given is None)
        options = {"kafka.bootstrap.servers": self._cluster.bootstrap, "subscribe": "orders"}
        part = PartitionSlice("orders", topic.topic_id, 0, 0, end, topic.partitions[0].leader_epoch)
        self.slices += 1
        return write_slice(SliceTask(options, part, layout, str(self.folder), f"run-1-{self.slices}"))

    def rows(self, result: SliceResult) -> list[dict[str, Any]]:
        """With the values of partitions, in the order of files."""
        found = []
        for file in result.files:
            table = pq.ParquetFile(self.folder / file.path).read()
            assert table.num_rows == file.rows == json.loads(file.stats)["numRecords"]
            assert (self.folder / file.path).stat().st_size == file.size_bytes
            offsets = table.column("offset").to_pylist()
            assert (offsets[0], offsets[-1] + 1) == file.offsets
            assert not set(file.partition_values) & set(table.schema.names)
            found += [{**row, **file.partition_values} for row in table.to_pylist()]
        return found


@pytest.fixture
def write(cluster: FakeCluster, tmp_path: Path) -> Writing:
    return Writing(cluster, tmp_path / "table")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record batch is a batch of rows, and three files may be open."""
    monkeypatch.setattr("kraft.spark.decode.TARGET_ROWS_BYTES", 1)
    monkeypatch.setattr(data_files, "MAX_OPEN_FILES", 3)


def documents(*values: Any) -> list[tuple[int, None, bytes | None, tuple[()]]]:
    return [
        (
            NOON_MS,
            None,
            value if value is None or isinstance(value, bytes) else json.dumps(value).encode(),
            (),
        )
        for value in values
    ]


def test_bytes_come_out_as_they_are_with_headers_and_nulls(partition: FakePartition, write: Writing) -> None:
    partition.append(
        [(NOON_MS, b"k\xff", None, [("h", b"1"), ("h", None)]), (NOON_MS + 1, None, b"\0\xff", ())]
    )
    result = write()
    (file,) = result.files
    assert file.path == "run-1-1-0.parquet"
    first, second = write.rows(result)
    assert first["key"] == b"k\xff"
    assert first["value"] is None
    assert first["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert (second["key"], second["value"], second["headers"]) == (None, b"\0\xff", None)
    assert [row["offset"] for row in (first, second)] == [0, 1]
    assert second["timestamp"].isoformat() == "2026-01-01T12:00:00.001000+00:00"
    assert (result.audit.records, result.audit.dead_letters, result.late_rows) == (2, 0, 0)
    assert result.schema == table_schema("bytes", None, None)


def test_every_offset_is_accounted_for(partition: FakePartition, write: Writing) -> None:
    aborted = partition.append([(NOON_MS, None, b"no", ())] * 2, producer_id=7, is_transactional=True)
    marker = partition.append(
        [(NOON_MS, b"\0\0\0\0", b"", ())], producer_id=7, is_transactional=True, is_control=True
    )
    partition.aborted.append((7, aborted, marker))
    partition.append([(NOON_MS, None, b"yes", ())], gap=4)
    result = write()
    assert [row["offset"] for row in write.rows(result)] == [7]
    audit = result.audit
    assert (audit.records, audit.aborted, audit.control, audit.hole_offsets) == (1, 2, 1, 4)
    assert audit.holes == ((3, 7),)
    assert audit.offsets == 8


def test_a_slice_without_records_makes_no_file(partition: FakePartition, write: Writing) -> None:
    partition.append([(NOON_MS, b"\0\0\0\1", b"", ())], producer_id=7, is_transactional=True, is_control=True)
    assert write().files == []


def test_files_are_rolled_at_their_size(partition: FakePartition, write: Writing) -> None:
    chance = random.Random(1)
    for _ in range(40):
        partition.append([(NOON_MS, None, chance.randbytes(1000), ()) for _ in range(100)])
    result = write(max_file_bytes=1 << 20)
    assert 4 <= len(result.files) <= 5
    assert all(file.size_bytes < 1.1 * (1 << 20) for file in result.files)
    assert [row["offset"] for row in write.rows(result)] == list(range(4000))
    assert [one.offsets[1] for one in result.files][:-1] == [one.offsets[0] for one in result.files][1:]


def test_by_hour_with_late_and_timeless_rows(partition: FakePartition, write: Writing) -> None:
    times = [
        NOON_MS,
        NOON_MS + HOUR_MS,
        NOON_MS - DAY_MS,
        NOON_MS,
        -1,
        9_000_000_000_000_000,
        NOON_MS - HOUR_MS,
    ]
    partition.append([(time, None, b"x", ()) for time in times])
    result = write(by="hour")
    assert {file.path.rpartition("/")[0]: file.rows for file in result.files} == {
        "date=2026-01-01/hour=12": 2,
        "date=2026-01-01/hour=13": 1,
        "date=2025-12-31/hour=12": 1,
        "date=1969-12-31/hour=23": 1,
        "date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__": 1,
        "date=2026-01-01/hour=11": 1,
    }
    assert result.late_rows == 3
    assert {"date": None, "hour": None} in [file.partition_values for file in result.files]
    assert sorted(file.offsets for file in result.files) == [(0, 4), (1, 2), (2, 3), (4, 5), (5, 6), (6, 7)]


def test_few_rows_a_folder_make_one_file_each(partition: FakePartition, write: Writing, small: None) -> None:
    """However late they are, and however few files may be open."""
    for _ in range(3):
        partition.append([(NOON_MS + day * DAY_MS, None, b"x", ()) for day in range(100)], codec=2)
    result = write(by="date")
    assert [file.rows for file in result.files] == [3] * 100
    assert sorted(row["offset"] for row in write.rows(result)) == list(range(300))


def test_little_memory_makes_more_files_and_row_groups_and_the_same_rows(
    partition: FakePartition, write: Writing, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "MAX_BUFFERED_BYTES", 100)
    for _ in range(3):
        partition.append([(NOON_MS + day * DAY_MS, None, b"x", ()) for day in range(5)], codec=2)
    result = write(by="date")
    rows = write.rows(result)
    assert len(result.files) > 5
    assert sorted(row["offset"] for row in rows) == list(range(15))
    assert {row["date"] for row in rows} == {f"2026-01-0{day}" for day in range(1, 6)}


@pytest.mark.parametrize(
    ("key", "folder", "value"),
    [
        (b"a/b=c%\xc3\xa9", "key=a%2Fb%3Dc%25é", "a/b=c%é"),
        (b"\xff", "key=%5Cxff", "\\xff"),
        (b"", "key=__HIVE_DEFAULT_PARTITION__", None),
        (None, "key=__HIVE_DEFAULT_PARTITION__", None),
    ],
)
def test_by_key(
    partition: FakePartition, write: Writing, key: bytes | None, folder: str, value: str | None
) -> None:
    partition.append([(NOON_MS, key, b"x", ())])
    result = write(by="key")
    (file,) = result.files
    assert file.path.rpartition("/")[0] == folder
    assert file.partition_values == {"key": value}


def test_a_key_that_no_folder_can_be_named_after_stops_the_run(
    partition: FakePartition, write: Writing
) -> None:
    partition.append([(NOON_MS, b"k" * 250, b"x", ())])
    with pytest.raises(ConnectorError, match="longer than the 200 bytes"):
        write(by="key")


def test_text_that_is_none_is_kept_raw(partition: FakePartition, write: Writing) -> None:
    partition.append([(NOON_MS, None, value, ()) for value in (b"\xc3\xa9", b"a\xff", None, b"")])
    result = write("string")
    rows = write.rows(result)
    assert [row["value"] for row in rows] == ["é", None, None, ""]
    assert [row["_raw"] for row in rows] == [None, b"a\xff", None, None]
    assert rows[1]["_error"] == "The value is not UTF-8: invalid start byte at byte 1."
    assert result.audit.dead_letters == 1


def test_json_with_a_schema(partition: FakePartition, write: Writing) -> None:
    partition.append(documents({"id": 1, "at": "2026-01-01T00:00:00Z", "more": 5}, {"id": "x"}, None, b"{"))
    result = write("json", fields="id INT, at TIMESTAMP")
    rows = write.rows(result)
    assert [row["id"] for row in rows] == [1, None, None, None]
    assert rows[0]["at"].isoformat() == "2026-01-01T00:00:00+00:00"
    assert "value" not in rows[0]
    assert "more" not in rows[0]
    assert rows[1]["_error"] == "The field id is 'x', and no INT."
    assert rows[1]["_raw"] == b'{"id": "x"}'
    assert (rows[2]["_error"], rows[2]["_raw"]) == (None, None)
    assert "not JSON" in rows[3]["_error"]
    assert result.audit.dead_letters == 2


def test_json_fields_are_found_and_proposed(partition: FakePartition, write: Writing) -> None:
    partition.append(documents({"id": 1, "offset": 9}, {"id": 2, "tags": ["a"]}))
    result = write("json")
    assert result.schema.names[-3:] == ["id", "value_offset", "tags"]
    rows = write.rows(result)
    assert [(row["offset"], row["value_offset"], row["tags"]) for row in rows] == [
        (0, 9, None),
        (1, None, ["a"]),
    ]
    partition.append(documents({"id": "three", "new": True}))
    again = write("json", schema=result.schema)
    assert again.schema.names == [*result.schema.names, "new"]
    last = write.rows(again)[-1]
    assert (last["id"], last["new"], last["_error"]) == (
        None,
        None,
        "The field id is 'three', and no BIGINT.",
    )


def test_a_field_that_turns_out_to_have_fractions_is_written_anew(
    partition: FakePartition, write: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraft.spark.decode.TARGET_ROWS_BYTES", 10)
    for price, weight in ((1, 1), (2, 2), (2.5, 3), (3, 3.5)):
        partition.append(documents({"price": price, "weight": weight}), codec=2)
    result = write("json")
    assert result.schema.field("price").type == result.schema.field("weight").type == pa.float64()
    assert [row["price"] for row in write.rows(result)] == [1.0, 2.0, 2.5, 3.0]
    assert result.audit.records == 4
    assert len(list(write.folder.glob("**/*.parquet"))) == len(result.files)


def test_by_a_json_field(partition: FakePartition, write: Writing) -> None:
    partition.append(
        documents({"host": "a b"}, {"host": ""}, {}, {"host": "h" * 300}, {"host": "a b"}, {"host": [5]})
    )
    result = write("json", by="host")
    assert {file.path.rpartition("/")[0]: file.rows for file in result.files} == {
        "host=a b": 2,
        "host=__HIVE_DEFAULT_PARTITION__": 4,
    }
    rows = {row["offset"]: row for row in write.rows(result)}
    assert "name of a folder" in rows[3]["_error"]
    assert rows[3]["_raw"] == json.dumps({"host": "h" * 300}).encode()
    assert rows[5]["_error"] == "The field host is an array, and no STRING."
    assert result.audit.dead_letters == 2


@pytest.mark.parametrize("fields", [None, "zone STRING"])
def test_numbers_to_partition_by_are_text(
    partition: FakePartition, write: Writing, fields: str | None
) -> None:
    """Whatever the other rows have: the column is the same for all of the table."""
    partition.append(documents(*[{"zone": number % 3} for number in range(1000)]))
    partition.append(documents({"zone": 1.50}, {"zone": True}, {"zone": "2"}, {"zone": -(10**20)}))
    result = write("json", by="zone", fields=fields)
    assert {file.path.rpartition("/")[0]: file.rows for file in result.files} == {
        "zone=0": 334,
        "zone=1": 333,
        "zone=2": 334,
        "zone=1.5": 1,
        "zone=true": 1,
        "zone=-100000000000000000000": 1,
    }
    assert result.audit.dead_letters == 0
    assert result.schema.field("zone").type == pa.string()


def test_nothing_is_left_of_a_slice_that_fails(partition: FakePartition, write: Writing) -> None:
    for _ in range(3):
        partition.append([(NOON_MS, None, b"x" * 100, ())] * 100)
    partition.batches[2] = partition.batches[2][:-1] + b"\xff"
    with pytest.raises(ConnectorError, match="checksum"):
        write(by="date", max_file_bytes=1)
    assert not list(write.folder.glob("**/*.parquet"))


def test_deleted_records_stop_the_run(cluster: FakeCluster, partition: FakePartition, write: Writing) -> None:
    partition.append([(NOON_MS, None, b"x", ())] * 3)
    partition.append([(NOON_MS, None, b"x", ())] * 3)
    partition.log_start_offset = 2
    with pytest.raises(DataLossError, match="Nothing of this cut was ingested"):
        write()
