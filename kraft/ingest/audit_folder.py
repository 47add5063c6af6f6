"""The audit rows of a Delta table: files of JSON lines in `_kraft/audit`, beside the data.

A commit's rows are written before the commit, as `<attempt>.jsonl`; they count if the table's log has taken the commit,
and are removed otherwise (`delta.py` decides). Now and then all such files are folded into one a day, in which the
rows of a partition that follow each other become one: the folder grows with days and partitions, not with commits.
A row that stands in both, since a fold was interrupted, is told by its offsets. The table's claim keeps others out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from kraft.ingest.audit_rows import row_from_json, row_to_json
from kraft.ingest.folder import control_folder, remove_file, sync, write_file
from kraft.ingest.model import MAX_NAMED_HOLES, AuditRow, TableError

FOLD_FROM = 100
"""So many files of commits are folded."""
_SUFFIX = ".jsonl"
_DAY = "day-"


class AuditFolder:
    def __init__(self, table: Path) -> None:
        self._folder = control_folder(table) / "audit"

    def write(self, attempt: str, rows: Sequence[AuditRow]) -> None:
        """Durable when it returns. Raises OSError."""
        write_file(self._file(attempt), _encode(rows))

    def read(self, attempt: str) -> list[AuditRow] | None:
        """The rows of an attempt; None if there are none. Raises TableError, OSError."""
        path = self._file(attempt)
        return _decode(path) if path.exists() else None

    def remove(self, attempt: str) -> None:
        remove_file(self._file(attempt))

    def rows(self) -> Iterator[AuditRow]:
        """All of them, each partition's ascending. Raises TableError, OSError."""
        found = [row for paths in self._files() for path in paths for row in _decode(path)]
        ends: dict[str, int] = {}
        for row in sorted(found, key=lambda row: (_application_id(row), row.start, -row.end)):
            if row.end > ends.get(_application_id(row), -1):
                ends[_application_id(row)] = row.end
                yield row

    def fold(self, *, at_least: int = FOLD_FROM) -> None:
        """Folds the rows of commits, all of which must have been taken, if there are so many files. Raises OSError."""
        for path in self._folder.glob(".*.tmp"):  # of a run that died while it wrote
            path.unlink()
        days, commits = self._files()
        if len(commits) < at_least:
            return
        by_day: dict[str, list[AuditRow]] = {}
        for row in self.rows():
            by_day.setdefault(_day(row), []).append(row)
        existing = {path.name: path.read_bytes() for path in days}
        for day, rows in by_day.items():
            name, data = f"{_DAY}{day}{_SUFFIX}", _encode(fold_rows(rows))
            if existing.get(name) != data:
                write_file(self._folder / name, data)
        for path in commits:
            path.unlink()
        sync(self._folder)

    def _file(self, attempt: str) -> Path:
        return self._folder / f"{attempt}{_SUFFIX}"

    def _files(self) -> tuple[list[Path], list[Path]]:
        """Those of days, ascending, and those of commits."""
        paths = sorted(self._folder.glob(f"*{_SUFFIX}")) if self._folder.is_dir() else []
        visible = [path for path in paths if not path.name.startswith(".")]
        days = [path for path in visible if path.name.startswith(_DAY)]
        return days, [path for path in visible if not path.name.startswith(_DAY)]


def fold_rows(rows: Iterable[AuditRow]) -> list[AuditRow]:
    """Rows of a partition that follow each other become one, as long as all their holes can be named.

    Such a row names no files: those of many commits are merged before long.
    """
    folded: list[AuditRow] = []
    last: dict[str, int] = {}
    for row in rows:
        name = _application_id(row)
        before = folded[last[name]] if name in last else None
        named = 0 if before is None else len(before.audit.holes) + len(row.audit.holes)
        if before is not None and before.end == row.start and named <= MAX_NAMED_HOLES:
            folded[last[name]] = replace(row, start=before.start, audit=before.audit + row.audit, files=())
        else:
            last[name] = len(folded)
            folded.append(row)
    return folded


def _application_id(row: AuditRow) -> str:
    return row.key.application_id(row.cluster_id)


def _day(row: AuditRow) -> str:
    return datetime.fromtimestamp(row.cut_time_ms / 1000, UTC).strftime("%Y-%m-%d")


def _encode(rows: Iterable[AuditRow]) -> bytes:
    return b"".join(json.dumps(row_to_json(row)).encode() + b"\n" for row in rows)


def _decode(path: Path) -> list[AuditRow]:
    try:
        found: list[Mapping[str, object]] = [json.loads(line) for line in path.read_bytes().splitlines()]
    except ValueError as error:
        raise TableError(
            f"The audit rows in {path} are damaged ({error}): restore the file from a copy."
        ) from error
    return [row_from_json(row) for row in found]
