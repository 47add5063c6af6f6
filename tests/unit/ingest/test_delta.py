"""The Delta table: rows and offsets in one commit, refusals, and what recovery leaves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import Transaction

from kraft.ingest.delta import CHECKPOINT_EVERY, DeltaLakeTable
from kraft.ingest.folder import control_folder
from kraft.ingest.model import CommitConflictError, TableError
from kraft.spark.stream_offsets import Position
from tests.unit.ingest.conftest import BYTES, CLUSTER, SCHEMA, commit_of, key

NAME = key().application_id(CLUSTER)


def take(
    table: DeltaLakeTable, attempt: str, ranges: Mapping[int, tuple[int, int]], **more: pa.Schema
) -> int:
    folder = table.staging(attempt)
    return table.commit(commit_of(folder, attempt, ranges, **more))


def offsets(folder: Path) -> list[tuple[int, int]]:
    """Partition and offset of each row that a reader finds."""
    rows = [
        row
        for uri in DeltaTable(str(folder)).file_uris()
        for row in pq.read_table(uri, columns=["partition", "offset"]).to_pylist()
    ]
    return sorted((row["partition"], row["offset"]) for row in rows)


def test_a_commit_holds_rows_and_offsets(tmp_path: Path) -> None:
    table = DeltaLakeTable(tmp_path, BYTES)
    assert (table.version(), table.schema(), table.properties()) == (-1, None, None)

    assert take(table, "r-1", {0: (0, 3), 1: (0, 2)}) == 0
    assert take(table, "r-2", {0: (3, 4), 1: (2, 2)}) == 1

    again = DeltaLakeTable(tmp_path, BYTES)
    assert offsets(tmp_path) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    assert again.positions() == {
        NAME: Position(4, 0),
        key(1).application_id(CLUSTER): Position(2, 0),
    }
    assert again.properties() == BYTES
    assert [(row.partition, row.start, row.end) for row in again.audit_rows()] == [
        (0, 0, 3),
        (0, 3, 4),
        (1, 0, 2),
    ]
    assert sorted(file.rows for file in again.files()) == [1, 2, 3]


def test_a_commit_that_does_not_begin_where_the_table_ends_is_refused(tmp_path: Path) -> None:
    table = DeltaLakeTable(tmp_path, BYTES)
    take(table, "r-1", {0: (0, 3)})
    for ranges in ({0: (0, 3)}, {0: (2, 5)}, {0: (4, 5)}):
        with pytest.raises(CommitConflictError, match="ends at 3"):
            take(table, "r-2", ranges)
    assert table.version() == 0


def test_a_commit_that_another_writer_got_in_before_is_refused(tmp_path: Path) -> None:
    """The other one comes between the look at the log and the commit: the log refuses, and its rows do not stay."""
    table = DeltaLakeTable(tmp_path, BYTES)
    take(table, "r-1", {0: (0, 3)})
    table.staging("r-2")
    commit = commit_of(tmp_path, "r-2", {0: (3, 5)})
    first = table._check_starts

    def late(checked: object) -> None:
        first(commit)
        other = DeltaTable(str(tmp_path))
        other.create_write_transaction(
            [],
            "append",
            other.schema(),
            commit_properties=CommitProperties(app_transactions=[Transaction(NAME, 4)]),
        )

    table._check_starts = late  # type: ignore[method-assign]
    with pytest.raises(CommitConflictError, match="has not taken the commit"):
        table.commit(commit)
    assert [row.end for row in table.audit_rows()] == [3]
    assert offsets(tmp_path) == [(0, 0), (0, 1), (0, 2)]


def test_columns_are_added(tmp_path: Path) -> None:
    table = DeltaLakeTable(tmp_path, BYTES)
    take(table, "r-1", {0: (0, 1)})
    wider = SCHEMA.append(pa.field("city", pa.string()))
    take(table, "r-2", {0: (1, 2)}, schema=wider)
    found = DeltaLakeTable(tmp_path, BYTES).schema()
    assert found is not None
    assert found.equals(wider)
    assert offsets(tmp_path) == [(0, 0), (0, 1)]


def test_recovery_removes_what_an_attempt_left_before_its_commit(tmp_path: Path) -> None:
    table = DeltaLakeTable(tmp_path, BYTES)
    take(table, "r-1", {0: (0, 3)})
    dead = DeltaLakeTable(tmp_path, BYTES)
    folder = dead.staging("r-2")
    commit = commit_of(folder, "r-2", {0: (3, 5)})
    dead._audit.write("r-2", [])  # it died after its audit rows and before its commit
    (control_folder(tmp_path) / "audit" / "r-2.jsonl").write_bytes(
        (control_folder(tmp_path) / "audit" / "r-1.jsonl")
        .read_bytes()
        .replace(b'"from": 0, "to": 3', b'"from": 3, "to": 5')
    )

    again = DeltaLakeTable(tmp_path, BYTES)
    again.recover()
    assert not (tmp_path / commit.results[0].files[0].path).exists()
    assert again.positions() == {NAME: Position(3, 0)}
    assert offsets(tmp_path) == [(0, 0), (0, 1), (0, 2)]
    assert list((control_folder(tmp_path) / "attempts").iterdir()) == []


def test_recovery_keeps_what_was_committed(tmp_path: Path) -> None:
    """The process died after the commit and before it took its note away."""
    table = DeltaLakeTable(tmp_path, BYTES)
    take(table, "r-1", {0: (0, 3)})
    (control_folder(tmp_path) / "attempts" / "r-1").touch()
    DeltaLakeTable(tmp_path, BYTES).recover()
    assert offsets(tmp_path) == [(0, 0), (0, 1), (0, 2)]
    assert DeltaLakeTable(tmp_path, BYTES).positions() == {NAME: Position(3, 0)}


def test_discarding_a_commit_that_was_made_keeps_its_files(tmp_path: Path) -> None:
    table = DeltaLakeTable(tmp_path, BYTES)
    take(table, "r-1", {0: (0, 3)})
    commit_of(tmp_path, "r-1", {7: (0, 1)})  # a file of a task that Spark tried twice
    commit_of(tmp_path, "r-10", {0: (0, 1)})  # of another attempt
    table.discard("r-1")
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == ["r-1-0-0.parquet", "r-10-0-0.parquet"]


def test_audit_rows_that_contradict_the_log_are_told(tmp_path: Path) -> None:
    table = DeltaLakeTable(tmp_path, BYTES)
    take(table, "r-1", {0: (0, 3)})
    take(table, "r-2", {0: (3, 5)})
    (control_folder(tmp_path) / "audit" / "r-2.jsonl").unlink()
    with pytest.raises(TableError, match=r"end at offset 3 .* at 5"):
        DeltaLakeTable(tmp_path, BYTES).positions()


def test_a_file_that_is_gone_before_the_commit_is_told(tmp_path: Path) -> None:
    table = DeltaLakeTable(tmp_path, BYTES)
    folder = table.staging("r-1")
    commit = commit_of(folder, "r-1", {0: (0, 3)})
    (folder / commit.results[0].files[0].path).unlink()
    with pytest.raises(TableError, match="is gone"):
        table.commit(commit)
    assert table.version() == -1


def test_many_commits_stay_quick_to_open(tmp_path: Path) -> None:
    """Checkpoints bound the log that is read, folds the files of audit rows."""
    table = DeltaLakeTable(tmp_path, BYTES)
    for number in range(2 * CHECKPOINT_EVERY + 1):
        assert take(table, f"r-{number}", {0: (number, number + 1)}) == number
    log = tmp_path / "_delta_log"
    assert (log / f"{2 * CHECKPOINT_EVERY - 1:020}.checkpoint.parquet").exists()
    table._audit.fold(at_least=1)
    again = DeltaLakeTable(tmp_path, BYTES)
    assert again.positions() == {NAME: Position(2 * CHECKPOINT_EVERY + 1, 0)}
    assert [(row.start, row.end, row.audit.records) for row in again.audit_rows()] == [(0, 51, 51)]
    assert len(offsets(tmp_path)) == 51
