"""The audit of tables that an ingestion has made, of both formats, sound and damaged by hand."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kraft.ingest import audit as audit_module
from kraft.ingest import parquet, table_rows
from kraft.ingest.audit import AuditReport, differing
from kraft.ingest.maintenance import compact, optimize, vacuum
from kraft.ingest.model import Format, TableFile, Values
from kraft.ingest.parquet import ParquetTable
from kraft.ingest.tables import open_table
from tests.support.fake_broker import FakeCluster
from tests.support.ingest_lake import Lake

_DELTA_COMMIT = DeltaTable, "create_write_transaction"
FORMATS: tuple[Format, ...] = ("delta", "parquet")


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    with FakeCluster() as cluster:
        yield Lake(cluster, tmp_path / "table", request.param)


def found(report: AuditReport, name: str, partition: int = 0) -> list[tuple[int, int]]:
    one: Any = next(one for one in report.partitions if one.key.partition == partition)
    return list(getattr(one, name).ranges)


def test_a_sound_table_is_complete(lake: Lake) -> None:
    lake.ingest_in_cuts()
    report = lake.audit()
    assert report.complete is True
    assert [(one.start, one.end, one.rows) for one in report.partitions] == [(0, 30, 30), (0, 12, 12)]


def test_a_run_that_goes_on_or_has_died_is_no_fault(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the writing of files and audit rows and the commit; and after the manifest, before its files move."""
    lake.ingest_in_cuts()

    def die(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    lake.produce(10)
    steps = (
        ((parquet, "create_file"), (parquet, "move_file")) if lake.format == "parquet" else (_DELTA_COMMIT,)
    )
    for number, step in enumerate(steps):
        with monkeypatch.context() as patched:
            patched.setattr(*step, die)
            with pytest.raises(KeyboardInterrupt):
                lake.ingest()
        report = lake.audit()
        assert report.complete is True
        assert report.partitions[0].end == 30 + 10 * number


def test_many_small_windows_find_the_same(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (audit_module, table_rows):
        monkeypatch.setattr(module, "WINDOW_BYTES", 1)
    lake.ingest_in_cuts()
    assert lake.audit().complete is True
    (lake.folder / lake.files()[1].path).unlink()
    report = lake.audit()
    assert found(report, "missing") == [(10, 20)]
    assert report.document()["missing"] == 10


@pytest.mark.parametrize(
    ("values", "partition_by"),
    [("bytes", "date"), ("bytes", "hour"), ("string", "topic"), ("bytes", "partition"), ("bytes", "key")],
)
def test_partitioned_tables(lake: Lake, values: Values, partition_by: str) -> None:
    lake.ingest_in_cuts(2, values, partition_by)
    assert lake.audit().complete is True


@pytest.mark.parametrize("city", ["a\u2028b", "a\u0085b", "Zürich", "a\rb\nc", "100%/x", ".."])
def test_a_log_with_any_text_is_read(lake: Lake, city: str) -> None:
    lake.first.append([(1, b"k", json.dumps({"city": city}).encode(), ())])
    lake.ingest("json", "city")
    assert [file.partition_values for file in lake.files()] == [{"city": city}]
    assert lake.audit().complete is True


def test_fields_of_json_are_compared(lake: Lake) -> None:
    documents = [
        b'{"a": 1, "b": "x"}',
        b'{"a": 2.5, "c": [1, 2]}',
        b"no json",
        None,
        b'{"a": 4, "d": {"e": true}}',
    ]
    for document in documents:
        lake.first.append([(1, b"k", document, ())])
    lake.ingest("json")
    lake.first.append([(1, b"k", b'{"a": "text", "new": 1}', ())])
    lake.ingest("json")
    assert lake.audit().complete is True
    change(lake.folder / lake.files()[0].path, 0, "a", 7)
    assert found(lake.audit(), "different") == [(0, 1)]


def test_a_row_that_was_refused_is_right_as_long_as_it_keeps_its_value(lake: Lake) -> None:
    """The run refuses a name that differs from another in case only; an audit, which infers nothing, would not."""
    for document in (b'{"a": 1}', b'{"A": 1}'):
        lake.first.append([(1, b"k", document, ())])
    lake.ingest("json")
    assert lake.audit().complete is True
    (file,) = lake.files()
    change(lake.folder / file.path, 1, "_raw", b'{"A": 2}')
    assert found(lake.audit(), "different") == [(1, 2)]


def change(path: Path, row: int, column: str, value: object) -> None:
    rows = pq.read_table(path)
    values = rows.column(column).to_pylist()
    values[row] = value
    index = rows.schema.get_field_index(column)
    pq.write_table(
        rows.set_column(index, rows.schema.field(index), pa.array(values, rows.schema.types[index])), path
    )


@pytest.mark.parametrize(("column", "value"), [("value", b"other"), ("key", None), ("timestamp", 5)])
def test_a_row_changed_by_hand_is_found(lake: Lake, column: str, value: object) -> None:
    lake.ingest_in_cuts()
    change(lake.folder / lake.files()[2].path, 4, column, value)
    report = lake.audit()
    assert report.complete is False
    assert found(report, "different") == [(24, 25)]
    assert report.document()["missing"] == report.document()["duplicated"] == 0


def test_a_file_deleted_by_hand_is_found(lake: Lake) -> None:
    lake.ingest_in_cuts()
    (lake.folder / (gone := lake.files()[1].path)).unlink()
    report = lake.audit()
    assert report.complete is False
    assert found(report, "missing") == [(10, 20)]
    assert report.lost_files == [gone]


def test_a_copy_of_a_file_added_by_hand_is_found(lake: Lake) -> None:
    lake.ingest_in_cuts()
    file = lake.files()[1]
    shutil.copy(lake.folder / file.path, lake.folder / "copy.parquet")
    before = lake.audit()
    assert before.complete is True
    assert before.unreferenced_files == 1
    lake.add_by_hand(file._replace(path="copy.parquet"))
    report = lake.audit()
    assert report.complete is False
    assert found(report, "duplicated") == [(10, 20)]
    assert report.unreferenced_files == 0


def test_a_file_added_twice_by_hand_is_found(lake: Lake) -> None:
    lake.ingest_in_cuts()
    file = lake.files()[1]
    lake.add_by_hand(file)
    report = lake.audit()
    assert report.complete is False
    assert report.repeated_files == [file.path]
    assert found(report, "duplicated") == [(10, 20)]


def test_rows_of_no_range_are_found(lake: Lake) -> None:
    lake.ingest_in_cuts()
    file = lake.files()[0]
    rows = pq.read_table(lake.folder / file.path)
    strange = rows.set_column(
        rows.schema.get_field_index("topic"), "topic", pa.array(["other"] * rows.num_rows)
    )
    pq.write_table(strange, lake.folder / "strange.parquet")
    lake.add_by_hand(file._replace(path="strange.parquet"))
    report = lake.audit()
    assert report.complete is False
    assert "10 rows are of no offset" in report.faults[0]


def test_a_damaged_file_is_found(lake: Lake) -> None:
    lake.ingest_in_cuts()
    path = lake.folder / lake.files()[1].path
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    report = lake.audit()
    assert report.complete is False
    assert len(report.damaged_files) == 1
    assert found(report, "missing") == [(10, 20)]


def test_what_the_cluster_has_expired_cannot_be_told(lake: Lake) -> None:
    lake.ingest_in_cuts()
    lake.first.log_start_offset = 13
    report = lake.audit()
    assert report.complete is None
    assert report.partitions[0].not_proved == [(0, 13, "the cluster has deleted these records")]
    change(lake.folder / lake.files()[1].path, 5, "value", b"other")
    assert found(lake.audit(), "different") == [(15, 16)]
    (lake.folder / lake.files()[0].path).unlink()
    report = lake.audit()
    assert report.complete is False
    assert report.partitions[0].missing.count == 10
    assert "30 records were ingested, and the table has 20 rows" in report.partitions[0].faults[0]


def test_without_a_cluster_only_the_table_is_judged(lake: Lake) -> None:
    lake.ingest_in_cuts()
    assert lake.audit(is_asked=False).complete is None
    (lake.folder / lake.files()[0].path).unlink()
    assert lake.audit(is_asked=False).complete is False


def test_a_topic_that_is_gone_or_made_anew_cannot_be_told(lake: Lake) -> None:
    lake.ingest_in_cuts()
    lake.topic = lake.cluster.create_topic("orders", leaders=(1, 1))
    lake.produce(5, word="anew")
    lake.ingest()
    report = lake.audit()
    assert report.complete is None
    assert report.document()["duplicated"] == 0
    lives = {one.key.topic_id: one for one in report.partitions if one.key.partition == 0}
    assert not lives[lake.topic.topic_id].not_proved
    old = next(one for topic_id, one in lives.items() if topic_id != lake.topic.topic_id)
    assert old.not_proved[0][2] == "the topic was deleted and created anew"
    file = next(file for file in open_table(lake.folder).files() if "anew-3" in values_of(lake, file))
    whole = (lake.folder / file.path).read_bytes()
    change(lake.folder / file.path, 3, "value", b"other")
    assert lake.audit().document()["different"] == 1
    (lake.folder / file.path).write_bytes(whole)
    del lake.cluster.topics["orders"]
    report = lake.audit()
    assert report.complete is None
    assert {one.not_proved[0][2] for one in report.partitions} == {"the topic was deleted"}


def values_of(lake: Lake, file: TableFile) -> list[str]:
    return [value.decode() for value in pq.read_table(lake.folder / file.path).column("value").to_pylist()]


def test_compaction_since_is_no_fault(lake: Lake) -> None:
    lake.ingest_in_cuts()
    del lake.first.batches[3:9]
    assert found(lake.audit(), "different") == [(3, 9)]
    assert lake.audit(allow_holes=True).complete is True
    lake.topic.configs["cleanup.policy"] = "compact"
    assert lake.audit().complete is True
    (lake.folder / lake.files()[0].path).unlink()
    report = lake.audit()
    assert found(report, "missing") == [(0, 3), (9, 10)]
    assert report.partitions[0].missing.count == 10


def test_a_removed_audit_row_is_found(tmp_path: Path) -> None:
    with FakeCluster() as cluster:
        lake = Lake(cluster, tmp_path / "table", "parquet")
        lake.ingest_in_cuts()
        table = ParquetTable(lake.folder)
        path = table._path(1)
        document = json.loads(path.read_bytes())
        document["audit"] = document["audit"][1:]
        path.write_bytes(json.dumps(document).encode())
        report = lake.audit()
    assert report.complete is False
    assert (
        "leave a gap or overlap: one ends at offset 10, the next begins at 20"
        in report.partitions[0].faults[0]
    )


@pytest.mark.parametrize("partition_by", [None, "date"])
def test_optimize_keeps_every_row_and_position(lake: Lake, partition_by: str | None) -> None:
    lake.ingest_in_cuts(3, "bytes", partition_by)
    before, positions = lake.files(), open_table(lake.folder).positions()
    done = optimize(lake.folder, max_file_bytes=128 << 20)
    alone = 1 if partition_by else 0  # 1970-01-04 has one file only
    assert done.merged == len(before) - alone
    assert done.into == len(lake.files()) - alone == (2 if partition_by else 1)
    assert open_table(lake.folder).positions() == positions
    assert lake.audit().complete is True
    if lake.format == "delta":
        assert DeltaTable(str(lake.folder)).to_pyarrow_table().num_rows == 42
    assert optimize(lake.folder, max_file_bytes=128 << 20).merged == 0
    assert vacuum(lake.folder, retention_s=3600) == []
    lake.produce(10)
    lake.ingest("bytes", partition_by)
    assert lake.audit().complete is True
    removed = vacuum(lake.folder, retention_s=0)
    assert len(removed) == done.merged
    report = lake.audit()
    assert report.complete is True
    assert report.unreferenced_files == 0


def test_files_that_are_few_enough_are_left_alone(lake: Lake) -> None:
    lake.ingest_in_cuts()
    table = open_table(lake.folder)
    assert compact(lake.folder, table, max_file_bytes=1 << 20, at_least=7).merged == 0
    assert compact(lake.folder, table, max_file_bytes=1 << 20, at_least=6).merged == 6


def test_columns_added_later_are_null_in_merged_files(lake: Lake) -> None:
    lake.first.append([(1, b"k", b'{"a": 1}', ())])
    lake.ingest("json")
    lake.first.append([(1, b"k", b'{"a": 2, "b": "x"}', ())])
    lake.ingest("json")
    optimize(lake.folder, max_file_bytes=1 << 20)
    (file,) = lake.files()
    rows = pq.read_table(lake.folder / file.path)
    assert rows.select(["a", "b"]).to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    assert lake.audit().complete is True


def test_only_what_differs_differs() -> None:
    schema = pa.schema(
        [("n", pa.int64()), ("f", pa.float64()), ("l", pa.list_(pa.int64())), ("_error", pa.string())]
    )
    rows = [
        {"n": 1, "f": float("nan"), "l": [1], "_error": None},
        {"n": None, "f": 1.0, "l": None, "_error": "so"},
        {"n": 3, "f": None, "l": [3], "_error": None},
    ]
    one = pa.Table.from_pylist(rows, schema)
    assert differing(one, one).tolist() == [False] * 3
    for row, change_ in enumerate(({"f": 2.0}, {"n": 0}, {"l": [3, None]})):
        other = [dict(cells) for cells in rows]
        other[row].update(change_)
        expected = [index == row for index in range(3)]
        assert differing(one, pa.Table.from_pylist(other, schema)).tolist() == expected
    worded = pa.Table.from_pylist([rows[0], {**rows[1], "_error": "otherwise"}, rows[2]], schema)
    assert not differing(one, worded).any()
    assert differing(one, pa.Table.from_pylist([{**rows[0], "_error": "x"}, *rows[1:]], schema)).tolist() == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("field", ["flag", "day", "text"])
def test_tables_partitioned_by_a_field_stay_so_when_merged(lake: Lake, field: str) -> None:
    for number in range(6):
        flag, text = ("true", "false", "null")[number % 3], ('"a b"', '"c=d/e%"', "null")[number % 3]
        document = f'{{"flag": {flag}, "day": {number % 2}, "text": {text}}}'
        lake.first.append([(1, b"k", document.encode(), ())])
        lake.ingest("json", field, "flag BOOLEAN, day INT, text STRING")
    values = {tuple(file.partition_values.items()) for file in lake.files()}
    if field == "flag":
        assert values == {(("flag", "true"),), (("flag", "false"),), (("flag", None),)}
    optimize(lake.folder, max_file_bytes=1 << 20)
    assert {tuple(file.partition_values.items()) for file in lake.files()} == values
    assert len(lake.files()) == len(values)
    assert lake.audit().complete is True


def test_structs_that_have_grown_are_merged_and_compared(lake: Lake) -> None:
    for document in (b'{"at": {"lat": 1.5}}', b'{"at": {"lat": 2.5, "lon": 3.5}}', b'{"at": null}'):
        lake.first.append([(1, b"k", document, ())])
        lake.ingest("json")
    assert lake.audit().complete is True
    optimize(lake.folder, max_file_bytes=1 << 20)
    (file,) = lake.files()
    assert pq.read_table(lake.folder / file.path).column("at").to_pylist() == [
        {"lat": 1.5, "lon": None},
        {"lat": 2.5, "lon": 3.5},
        None,
    ]
    assert lake.audit().complete is True
