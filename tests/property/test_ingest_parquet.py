"""A Parquet table whose process dies before or after any step on the disk: each row is there once, and never twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraft.ingest import parquet
from kraft.ingest.audit_folder import fold_rows
from kraft.ingest.model import CommitConflictError, TableFile, partition_key
from kraft.ingest.parquet import ParquetTable
from tests.support.ingest_tables import (
    CLUSTER,
    PARQUET,
    TOPIC_ID,
    commit_of,
    ingest,
    part,
    plain_offsets,
    result,
    rows,
    written,
)

STEPS = ("write_properties", "make_folder", "create_file", "move_file", "remove_tree", "sync", "write_file")
COMMITS = 2
OFFSETS = 10


class CrashError(BaseException):
    """The process has died: nothing may catch it."""


class CrashingDisk:
    """Dies before the step of a number (after it is before the next)."""

    def __init__(self, dies_at: int, watched: Path | None = None) -> None:
        """What a plain reader sees of the table in `watched` is looked at before each step."""
        self.steps = 0
        self._dies_at = dies_at
        self._watched = watched

    def wrap(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any) -> Any:
            self.steps += 1
            if self._watched is not None:
                seen = plain_offsets(self._watched)
                assert len(seen) == len(set(seen)), "a reader sees a row twice"
            if self.steps == self._dies_at:
                raise CrashError
            return step(*given)

        return counted


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[CrashingDisk | None], None]:
    originals = {name: getattr(parquet, name) for name in STEPS}

    def install(crashing: CrashingDisk | None) -> None:
        for name, step in originals.items():
            monkeypatch.setattr(parquet, name, step if crashing is None else crashing.wrap(step))

    monkeypatch.setattr(parquet, "CHECKPOINT_EVERY", 2)
    return install


def run(folder: Path, attempt: str) -> None:
    """A whole run: what is missing of the commits, then a compaction, if there was none yet."""
    table = ParquetTable(folder, PARQUET)
    table.recover()
    position = table.positions().get(partition_key(part(0, 1)).application_id(CLUSTER))
    start = 0 if position is None else position.offset
    for number in range(start // OFFSETS, COMMITS):
        ingest(table, f"{attempt}-{number}", [part(number * OFFSETS, (number + 1) * OFFSETS)])
    files = list(table.files())
    if len(files) == COMMITS:
        merged = written(
            table.staging(f"{attempt}-merge"), f"{attempt}-m", rows(range(OFFSETS * COMMITS)), {}
        )
        table.replace_files(
            [file.path for file in files],
            [TableFile(merged.path, merged.size_bytes, merged.rows, {})],
        )


def died(folder: Path, attempt: str) -> bool:
    """Whether a run came to its crash."""
    try:
        run(folder, attempt)
    except CrashError:
        return True
    return False


def check_whole(folder: Path) -> None:
    table = ParquetTable(folder)
    assert plain_offsets(folder) == list(range(OFFSETS * COMMITS))
    assert [(row.start, row.end) for row in fold_rows(table.audit_rows())] == [(0, OFFSETS * COMMITS)]
    assert table.unreferenced() == []
    assert all(table.data_path(file.path) == folder / file.path for file in table.files())
    assert not (folder / "_staging").exists()


def test_a_crash_at_any_step_loses_and_doubles_nothing(
    tmp_path: Path, disk: Callable[[CrashingDisk | None], None]
) -> None:
    whole = tmp_path / "whole"
    counting = CrashingDisk(-1, whole)
    disk(counting)
    run(whole, "a")
    assert counting.steps > 30
    for dies_at in range(1, counting.steps + 1):
        folder = tmp_path / str(dies_at)
        disk(CrashingDisk(dies_at))
        assert died(folder, "a")
        disk(None)
        run(folder, "b")
        ParquetTable(folder).recover()
        check_whole(folder)


def test_a_second_crash_while_the_first_is_mended(
    tmp_path: Path, disk: Callable[[CrashingDisk | None], None]
) -> None:
    for dies_at in range(3, 31, 4):
        for again_at in (1, 3, 4, 5, 7):
            folder = tmp_path / f"{dies_at}-{again_at}"
            for attempt, step in (("a", dies_at), ("b", again_at)):
                disk(CrashingDisk(step))
                assert died(folder, attempt) or attempt == "b"
            disk(None)
            run(folder, "c")
            ParquetTable(folder).recover()
            check_whole(folder)


def test_of_two_runs_at_once_one_commits(tmp_path: Path) -> None:
    ParquetTable(tmp_path, PARQUET).staging("x")
    first, second = ParquetTable(tmp_path), ParquetTable(tmp_path)
    ingest(first, "a-1", [part(0, 10)])
    taken = result(second, "b-1", part(0, 10), "0", {})
    with pytest.raises(CommitConflictError, match="version 0"):
        second.commit(commit_of("b-1", [taken]))
    second.refresh()
    with pytest.raises(CommitConflictError, match="begins at offset 0, and the table ends at 10"):
        second.commit(commit_of("b-1", [taken]))
    second.discard("b-1")
    assert plain_offsets(tmp_path) == list(range(10))


def test_a_topic_made_anew_does_not_continue_the_old_one(tmp_path: Path) -> None:
    table = ParquetTable(tmp_path, PARQUET)
    ingest(table, "a-1", [part(0, 10)])
    ingest(table, "a-2", [part(0, 5, topic_id=TOPIC_ID[::-1])])
    assert sorted(position.offset for position in table.positions().values()) == [5, 10]
