"""The Parquet table: what its log says, what it refuses, what maintenance does to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kraft.ingest import parquet
from kraft.ingest.maintenance import ContinuousCompaction, bins, optimize, vacuum
from kraft.ingest.model import Table, TableError, TableFile
from kraft.ingest.parquet import ParquetTable
from kraft.ingest.tables import open_table
from tests.support.ingest_tables import DELTA, PARQUET, ingest, part, plain_offsets


@pytest.fixture
def table(tmp_path: Path) -> ParquetTable:
    return ParquetTable(tmp_path / "table", PARQUET)


def test_commits_are_numbered_and_seen_by_later_handles(table: ParquetTable) -> None:
    assert table.version() == -1
    assert [ingest(table, f"a-{number}", [part(10 * number, 10 * number + 10)]) for number in range(3)] == [
        0,
        1,
        2,
    ]
    later = ParquetTable(table.folder)
    assert later.version() == 2
    assert later.properties() == PARQUET
    assert later.schema() == table.schema()
    assert list(later.audit_rows()) == list(table.audit_rows())
    assert list(later.files()) == list(table.files())
    assert plain_offsets(table.folder) == list(range(30))


def test_a_handle_takes_in_what_another_commits(table: ParquetTable) -> None:
    ingest(table, "a-1", [part(0, 10)])
    ingest(ParquetTable(table.folder), "b-1", [part(10, 20)])
    (position,) = table.positions().values()
    assert (position.offset, position.leader_epoch) == (20, 3)
    assert ingest(table, "a-2", [part(20, 30)]) == 2


def test_opening_reads_a_checkpoint_and_what_follows(
    table: ParquetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "CHECKPOINT_EVERY", 4)
    for number in range(10):
        ingest(table, f"a-{number}", [part(10 * number, 10 * number + 10)])
    manifests = table.folder / "_kraft/manifests"
    for path in manifests.glob("*[0-9].json"):
        os.utime(path, (0, 0))
    assert vacuum(table.folder, retention_s=-10) == []
    assert sorted(path.name.lstrip("0") for path in manifests.iterdir()) == [
        "7.checkpoint.json",
        "7.json",
        "8.json",
        "9.json",
    ]
    later = ParquetTable(table.folder)
    assert later.version() == 9
    assert len(list(later.files())) == 10
    assert [(row.start, row.end, row.audit.records) for row in later.audit_rows()] == [
        (0, 80, 80),
        (80, 90, 10),
        (90, 100, 10),
    ]
    assert ingest(later, "b-1", [part(100, 110)]) == 10


def test_a_missing_or_damaged_manifest_is_named(table: ParquetTable) -> None:
    for number in range(3):
        ingest(table, f"a-{number}", [part(10 * number, 10 * number + 10)])
    path = table._path(1)
    whole = path.read_bytes()
    for data in (whole[:-5], b"{}", whole.replace(b'"format":1', b'"format":2')):
        path.write_bytes(data)
        with pytest.raises(TableError, match=f"{path.name} is"):
            ParquetTable(table.folder)
    path.unlink()
    with pytest.raises(TableError, match=f"{path.name} is missing"):
        ParquetTable(table.folder)


def test_a_folder_that_is_neither_empty_nor_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.parquet").write_bytes(b"")
    with pytest.raises(TableError, match="neither empty nor a table"):
        ParquetTable(tmp_path, PARQUET)


def test_a_run_that_died_before_its_first_commit_leaves_a_folder_that_is_ours(table: ParquetTable) -> None:
    (table.staging("a-1") / "a-1-0.parquet").write_bytes(b"half")
    again = ParquetTable(table.folder, PARQUET)
    again.recover()
    assert ingest(again, "b-1", [part(0, 10)]) == 0
    assert plain_offsets(table.folder) == list(range(10))


def test_discard_keeps_what_the_commit_has_taken(
    table: ParquetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(parquet, "move_file", fail)
        with pytest.raises(OSError, match="full"):
            ingest(table, "a-1", [part(0, 10)])
    table.discard("a-1")
    assert plain_offsets(table.folder) == list(range(10))
    assert ingest(table, "a-2", [part(10, 20)]) == 1


def test_files_of_a_dead_run_are_no_ones(table: ParquetTable) -> None:
    ingest(table, "a-1", [part(0, 10)])
    (table.folder / "strange.parquet").write_bytes(b"")
    assert [path.name for path in table.unreferenced()] == ["strange.parquet"]
    assert vacuum(table.folder, retention_s=3600) == []
    assert vacuum(table.folder, retention_s=-10, dry_run=True) == ["strange.parquet"]
    assert vacuum(table.folder, retention_s=-10) == ["strange.parquet"]
    assert plain_offsets(table.folder) == list(range(10))


@pytest.mark.parametrize("properties", [DELTA, PARQUET])
def test_a_continuous_run_merges_once_a_minute(tmp_path: Path, properties: object) -> None:
    folder = tmp_path / "table"
    (table,) = [ParquetTable(folder, PARQUET)] if properties == PARQUET else [_delta(folder)]
    now_s = [0.0]
    merge = ContinuousCompaction(folder, max_file_bytes=1 << 30, clock=lambda: now_s[0])
    counts = []
    for number in range(40):
        ingest(table, f"a-{number}", [part(10 * number, 10 * number + 10), part(number, number + 1, 1)])
        now_s[0] += 2.5
        merge(table)
        counts.append(len(list(table.files())))
    assert max(counts) == (80 if properties == PARQUET else 46)
    if properties == DELTA:
        assert counts[22:25] == [46, 1, 3]
        assert DeltaTable(str(folder)).to_pyarrow_table().num_rows == 440


def _delta(folder: Path) -> Table:
    from kraft.ingest.delta import DeltaLakeTable

    return DeltaLakeTable(folder, DELTA)


def test_few_small_files_wait_for_more(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    table = _delta(folder)
    now_s = [0.0]
    merge = ContinuousCompaction(folder, max_file_bytes=1 << 30, clock=lambda: now_s[0])
    ingest(table, "a-1", [part(0, 10), part(0, 10, 1)])
    now_s[0] = 61.0
    merge(table)
    assert len(list(open_table(folder).files())) == 2


def test_bins_are_filled_in_order() -> None:
    files = [TableFile(str(size), size, 1, {}) for size in (5, 5, 1, 10, 3, 3, 3, 3)]
    assert [[file.size_bytes for file in one] for one in bins(files, 10)] == [
        [5, 5],
        [1],
        [10],
        [3, 3, 3],
        [3],
    ]
    assert list(bins([], 10)) == []


def test_a_damaged_file_is_not_merged_away(table: ParquetTable) -> None:
    for number in range(2):
        ingest(table, f"a-{number}", [part(10 * number, 10 * number + 10)])
    (table.folder / "a-0-0.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(TableError, match="is damaged"):
        optimize(table.folder, max_file_bytes=1 << 20)
    assert len(list(ParquetTable(table.folder).files())) == 2
