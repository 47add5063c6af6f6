"""A Delta table, through `deltalake`: rows and offsets in one entry of its log.

Each commit adds the files of a cut and, for each partition that moves, a `txn`: application id = cluster, topic id and
partition; version = next offset. The versions are read and the commit made on one handle, so that the log refuses a
commit that another writer got in before; the start of each range is checked against them, since the log alone takes any
higher version. Leader epochs stand in the audit rows (`audit_folder.py`), as commit information is not in checkpoints.

Durable: files and folders by the workers, audit rows, then the entry of the log, which this module fsyncs when
`deltalake` has made it visible. In between readers may see rows that a loss of power takes back with their offsets; the
next run then ingests them again. What a dead run left is told by its note in `_kraft/attempts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import (
    AddAction,
    PostCommitHookProperties,
    Transaction,
    create_table_with_add_actions,
)

from kraft.ingest.audit_folder import AuditFolder
from kraft.ingest.audit_rows import audit_rows
from kraft.ingest.folder import (
    control_folder,
    data_files,
    read_properties,
    remove_file,
    sync,
    write_file,
    write_properties,
)
from kraft.ingest.model import (
    AuditRow,
    Commit,
    CommitConflictError,
    TableError,
    TableFile,
    TableProperties,
    WrittenFile,
)
from kraft.ingest.partitioning import partition_columns
from kraft.spark.stream_offsets import Position

CHECKPOINT_EVERY = 25
"""Commits; opening the table reads no more entries of the log than these."""
LOG_RETENTION = "interval 2 days"
"""How far back earlier versions can be read: a run that commits every 2 s makes 43,200 entries a day."""
_LOG = "_delta_log"
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


class DeltaLakeTable:
    """See `model.Table`. A new one gets `properties` with its first commit; not for several threads."""

    def __init__(self, folder: Path, properties: TableProperties) -> None:
        self._folder = folder
        self._wanted = properties
        self._audit = AuditFolder(folder)
        self._attempts = control_folder(folder) / "attempts"
        self._handle = _open(folder)

    # ---- what it holds

    def properties(self) -> TableProperties | None:
        return None if self._handle is None else read_properties(self._folder)

    def schema(self) -> pa.Schema | None:
        return None if self._handle is None else pa.schema(self._handle.schema().to_arrow())

    def version(self) -> int:
        return -1 if self._handle is None else int(self._handle.version())

    def positions(self) -> dict[str, Position]:
        """Raises TableError where audit rows and log contradict each other."""
        self._refresh()
        found: dict[str, Position] = {}
        for row in self._audit.rows():
            found[row.key.application_id(row.cluster_id)] = Position(row.end, row.leader_epoch)
        for name, position in found.items():
            end = self._end(name)
            if end != position.offset:
                raise TableError(
                    f"The audit rows of {self._folder} end at offset {position.offset} for {name}, but the table's"
                    f" log at {end}: one of them was changed by hand, or restored without the other. Restore both."
                )
        return found

    def audit_rows(self) -> Iterator[AuditRow]:
        return self._audit.rows()

    def files(self) -> Iterator[TableFile]:
        self._refresh()
        if self._handle is None:
            return
        for action in pa.table(self._handle.get_add_actions()).to_pylist():
            values = {name: _partition_text(value) for name, value in (action.get("partition") or {}).items()}
            yield TableFile(unquote(action["path"]), action["size_bytes"], action["num_records"] or 0, values)

    # ---- attempts

    def staging(self, prefix: str) -> Path:
        if self._handle is None and read_properties(self._folder) != self._wanted:
            write_properties(self._folder, self._wanted)
        write_file(self._attempts / prefix, b"")
        return self._folder

    def discard(self, prefix: str) -> None:
        """Also of a commit that was made: what it names stays."""
        self._refresh()
        referenced = {file.path for file in self.files()}
        for path in data_files(self._folder):
            if path.name.startswith(f"{prefix}-") and str(path.relative_to(self._folder)) not in referenced:
                remove_file(path)
        remove_file(self._attempts / prefix)

    def recover(self) -> None:
        self._refresh()
        for note in sorted(self._attempts.iterdir()) if self._attempts.is_dir() else []:
            rows = self._audit.read(note.name)
            if rows is not None and all(self._has(row) for row in rows):
                remove_file(note)
            else:
                self._audit.remove(note.name)
                self.discard(note.name)
        if self._handle is not None:
            self._sync_log()
        self._audit.fold()

    # ---- commit

    def commit(self, commit: Commit) -> int:
        self._refresh()
        self._check_starts(commit)
        actions = [self._add_action(file) for result in commit.results for file in result.files]
        self._audit.write(commit.attempt, audit_rows(commit))
        try:
            self._commit(commit, actions)
        except DeltaError as error:
            self._settle_failed(commit, error)
        self._refresh()  # after a checkpoint the handle does not see its own commit
        self._sync_log()
        remove_file(self._attempts / commit.attempt)
        if self.version() % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1:
            self._checkpoint()
            self._audit.fold()
        return self.version()

    def _commit(self, commit: Commit, actions: list[AddAction]) -> None:
        properties = CommitProperties(
            app_transactions=[
                Transaction(key.application_id(commit.cluster_id), taken.end)
                for key, taken in sorted(commit.ranges.items())
            ]
        )
        partition_by = list(partition_columns(self._wanted.partition_by))
        if self._handle is None:
            create_table_with_add_actions(
                str(self._folder),
                Schema.from_arrow(commit.schema),
                actions,
                mode="error",
                partition_by=partition_by,
                configuration={"delta.logRetentionDuration": LOG_RETENTION},
                commit_properties=properties,
                post_commithook_properties=_NO_HOOKS,
            )
            sync(self._folder)
            self._handle = _open(self._folder)
            return
        self._add_columns(commit)
        self._handle.create_write_transaction(
            actions,
            mode="append",
            schema=self._handle.schema(),
            partition_by=partition_by,
            commit_properties=properties,
            post_commithook_properties=_NO_HOOKS,
        )

    def _add_columns(self, commit: Commit) -> None:
        """Those that are new, and structs that have grown inside, in an entry of the log of their own.

        The handle has moved then, so that the starts are checked once more.
        """
        assert self._handle is not None
        present = {field.name: field.type for field in pa.schema(self._handle.schema().to_arrow())}
        added = [field for field in commit.schema if present.get(field.name) != field.type]
        if added:
            self._handle.alter.add_columns(
                list(Schema.from_arrow(pa.schema(added)).fields), post_commithook_properties=_NO_HOOKS
            )
            self._refresh()
            self._sync_log()
            self._check_starts(commit)

    def _check_starts(self, commit: Commit) -> None:
        for key, taken in commit.ranges.items():
            end = self._end(key.application_id(commit.cluster_id))
            if end is not None and end != taken.start:
                raise CommitConflictError(
                    f"{key.topic}-{key.partition}: the commit begins at offset {taken.start}, but {self._folder}"
                    f" ends at {end}."
                )

    def _settle_failed(self, commit: Commit, error: DeltaError) -> None:
        """Whether the commit was made all the same, a newly read log tells. Raises CommitConflictError if not."""
        self._handle = _open(self._folder)
        ends = {key: self._end(key.application_id(commit.cluster_id)) for key in commit.ranges}
        if all(ends[key] == taken.end for key, taken in commit.ranges.items()):
            return
        self._audit.remove(commit.attempt)
        raise CommitConflictError(f"{self._folder} has not taken the commit: {error}") from error

    def _add_action(self, file: WrittenFile) -> AddAction:
        path = self._folder / file.path
        try:
            found = path.stat()
        except FileNotFoundError:
            raise TableError(
                f"{path} was written for this commit and is gone: run the command again."
            ) from None
        if found.st_size != file.size_bytes:
            raise TableError(
                f"{path} has {found.st_size} bytes, but {file.size_bytes} were written: run the command again."
            )
        modified_ms = found.st_mtime_ns // 1_000_000
        return AddAction(file.path, file.size_bytes, file.partition_values, modified_ms, True, file.stats)

    # ---- the log

    def _refresh(self) -> None:
        if self._handle is None:
            self._handle = _open(self._folder)
        else:
            self._handle.update_incremental()

    def _end(self, application_id: str) -> int | None:
        """The version of a `txn` on the handle; None: there is none."""
        if self._handle is None:
            return None
        found: int | None = self._handle.transaction_version(application_id)
        return found

    def _has(self, row: AuditRow) -> bool:
        end = self._end(row.key.application_id(row.cluster_id))
        return end is not None and end >= row.end

    def _sync_log(self) -> None:
        log = self._folder / _LOG
        entry = log / f"{self.version():020}.json"
        if entry.exists():  # else a checkpoint holds it, which is durable before entries are removed
            sync(entry)
        sync(log)

    def _checkpoint(self) -> None:
        assert self._handle is not None
        self._handle.create_checkpoint()
        log = self._folder / _LOG
        for path in (log / f"{self.version():020}.checkpoint.parquet", log / "_last_checkpoint", log):
            sync(path)
        self._handle.cleanup_metadata()


def _partition_text(value: object) -> str | None:
    """As the log has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def _open(folder: Path) -> DeltaTable | None:
    """None: there is no table. Raises TableError."""
    if not (folder / _LOG).is_dir():
        return None
    try:
        return DeltaTable(str(folder))
    except TableNotFoundError:
        return None
    except DeltaError as error:
        raise TableError(f"The Delta table in {folder} cannot be opened: {error}.") from error
