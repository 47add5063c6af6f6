"""A table of plain Parquet files: data, audit and positions of a cut become its in one step, the next manifest.

    DIR/date=2026-01-31/…parquet     what `spark.read.parquet(DIR)` reads
    DIR/_staging/ATTEMPT/…           files that no manifest names yet
    DIR/_kraft/manifests/00…7.json   one a commit, made exclusively: that it is there is the commit
    DIR/_kraft/superseded/VERSION/…  files that a compaction has replaced, until `vacuum`

Files are moved to their places after their manifest is durable, and those that they replace are moved away before: a
plain reader never sees a row twice, and sees all rows when the step is through. What a dead run has left undone, the
next one does: only the last manifest can be unfinished. All that changes the table is done under the claim
(`claim.py`); whoever changes it all the same takes the manifest's number away. `run.py` and `maintenance.py` call it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from kraft.ingest.audit_rows import audit_rows
from kraft.ingest.folder import (
    control_folder,
    data_files,
    is_strange,
    make_folder,
    read_properties,
    sync,
    write_file,
    write_properties,
)
from kraft.ingest.manifest import NO_VERSION, Manifest, TableState, decode, encode
from kraft.ingest.model import (
    AuditRow,
    Commit,
    CommitConflictError,
    CommitRange,
    PartitionKey,
    TableError,
    TableFile,
    TableProperties,
)
from kraft.spark.stream_offsets import Position

STAGING = "_staging"
CHECKPOINT_EVERY = 100
"""Manifests; opening a table reads at most so many, and a checkpoint."""
_READ_ATTEMPTS = 5
_DIGITS = 20
_MANIFEST, _CHECKPOINT = ".json", ".checkpoint"
_REMOVED = ".removed-"


class ParquetTable:
    """The handle of one table. It sees what others commit after `refresh` only; its own commits at once."""

    def __init__(self, folder: Path, properties: TableProperties | None = None) -> None:
        """`properties` are those of a table that is not there yet; the folder is empty then, or missing.

        Raises TableError.
        """
        self.folder = folder.absolute()
        self._wanted = properties
        self._manifests = control_folder(self.folder) / "manifests"
        self._superseded = control_folder(self.folder) / "superseded"
        self._is_unfinished = False
        self._state = self._read()

    def refresh(self) -> None:
        """Takes in what has been committed."""
        checkpoints, manifests = self._listed()
        if self._state.version != max([NO_VERSION, *checkpoints[-1:], *manifests[-1:]]):
            self._state = self._read()

    def properties(self) -> TableProperties | None:
        return read_properties(self.folder)

    def schema(self) -> pa.Schema | None:
        return self._state.schema

    def version(self) -> int:
        """Of the last manifest; -1: none."""
        return self._state.version

    def positions(self) -> dict[str, Position]:
        """By application id. Takes in what has been committed."""
        self.refresh()
        return dict(self._state.positions)

    def audit_rows(self) -> Iterator[AuditRow]:
        """The oldest first; those before the last checkpoint are summed up."""
        return iter(self._state.audit)

    def files(self) -> Iterator[TableFile]:
        """One that was added twice comes twice."""
        yield from self._state.files.values()
        yield from self._state.repeated

    def data_path(self, path: str) -> Path:
        """Where a file of the table is now: at its place, staged until its commit is through, or superseded since.

        The place itself, if it is nowhere.
        """
        place = self.folder / path
        if place.exists():
            return place
        elsewhere = [*self._staged(), *self._superseded.glob("*")]
        return next((found for above in elsewhere if (found := above / path).exists()), place)

    def staging(self, prefix: str) -> Path:
        """Makes and returns the folder of an attempt; the first one of a table says what the folder is."""
        if self._wanted is not None and read_properties(self.folder) is None:
            write_properties(self.folder, self._wanted)
        folder = self.folder / STAGING / prefix
        make_folder(folder)
        return folder

    def discard(self, prefix: str) -> None:
        """Removes what the attempt has written and no commit has taken."""
        self._finish_last()
        remove_tree(self.folder / STAGING / prefix)

    # ---- what changes the table

    def commit(self, commit: Commit) -> int:
        """Makes the rows part of the table. Raises CommitConflictError; OSError where it may have been made."""
        for key, moved in commit.ranges.items():
            _check_start(self._state.positions, key, moved, commit.cluster_id)
        files = tuple(
            TableFile(file.path, file.size_bytes, file.rows, file.partition_values)
            for result in commit.results
            for file in result.files
        )
        taken = next((file.path for file in files if file.path in self._state.files), None)
        if taken is not None:
            raise TableError(f"The table has {taken} already: the names of an attempt's files are its own.")
        schema = commit.schema if commit.schema != self._state.schema else None
        version = self._take(add=files, audit=tuple(audit_rows(commit)), schema=schema)
        remove_tree(self.folder / STAGING / commit.attempt)
        return version

    def replace_files(self, remove: Sequence[str], add: Sequence[TableFile]) -> int:
        """Puts staged files in the place of others that hold the same rows. Raises as `commit` does."""
        gone = next((path for path in remove if path not in self._state.files), None)
        if gone is not None:
            raise CommitConflictError(f"The table does not have {gone} any more: plan the compaction anew.")
        return self._take(add=tuple(add), remove=tuple(remove))

    def recover(self) -> None:
        """Under the claim: finishes the last commit, and removes what no commit has taken."""
        self.refresh()
        for path in self._manifests.glob(".*"):
            path.unlink()
        self._finish_last()
        remove_tree(self.folder / STAGING)

    def _take(
        self,
        *,
        add: tuple[TableFile, ...],
        remove: tuple[str, ...] = (),
        audit: tuple[AuditRow, ...] = (),
        schema: pa.Schema | None = None,
    ) -> int:
        """One step: its manifest, then the moves."""
        if self._is_unfinished:
            self._finish_last()
        manifest = Manifest(self._state.version + 1, add, remove, audit, schema)
        make_folder(self._manifests)
        try:
            create_file(self._path(manifest.version), encode(manifest))
        except FileExistsError as error:
            raise CommitConflictError(
                f"Another run has made version {manifest.version} of {self.folder}: plan again from its positions."
            ) from error
        self._state.apply(manifest)
        self._is_unfinished = True
        self._finish(manifest)
        if (manifest.version + 1) % CHECKPOINT_EVERY == 0:
            checkpoint = self._state.checkpoint()
            write_file(self._path(checkpoint.version, _CHECKPOINT), encode(checkpoint))
        return manifest.version

    def _finish_last(self) -> None:
        versions = self._listed()[1]
        if versions:
            self._finish(self._load(versions[-1]))

    def _finish(self, manifest: Manifest) -> None:
        """Moves files to where the manifest says they are; those that are there already stay."""
        self._move_all([self.folder], self._superseded / f"{manifest.version:0{_DIGITS}}", manifest.remove)
        self._move_all(self._staged(), self.folder, [file.path for file in manifest.add])
        self._is_unfinished = False

    def _staged(self) -> list[Path]:
        """The folders of attempts."""
        return sorted(path for path in self.folder.glob(f"{STAGING}/*") if not path.name.startswith("."))

    def _move_all(self, sources: Sequence[Path], target: Path, paths: Iterable[str]) -> None:
        """Durable when it returns; a file that is in none of the source folders has been moved before."""
        changed = set()
        for path in paths:
            source = next((above for above in sources if (above / path).exists()), None)
            if source is not None:
                make_folder((target / path).parent)
                move_file(source / path, target / path)
                changed.add((source / path).parent)
            changed.add((target / path).parent)
        for folder in sorted(changed):
            if folder.is_dir():
                sync(folder)

    def vacuum(self, older_than_s: float, *, dry_run: bool = False) -> list[str]:
        """Under the claim, after `recover`: removes what nothing needs and was last touched before this time (seconds
        since 1970): superseded files, files that no manifest names, and the manifests that a checkpoint sums up.
        Returns the paths of the data files."""
        found = [*self.unreferenced(), *sorted(self._superseded.rglob("*.parquet"))]
        old = [path for path in found if path.stat().st_ctime < older_than_s]
        if not dry_run:
            for path in old:
                path.unlink()
            for folder in sorted(self._superseded.rglob("*"), reverse=True):
                if folder.is_dir() and not any(folder.iterdir()):
                    folder.rmdir()
            self._forget_summed_up(older_than_s)
        return [str(path.relative_to(self.folder)) for path in old]

    def _forget_summed_up(self, older_than_s: float) -> None:
        checkpoints, versions = self._listed()
        for version in checkpoints[:-1]:
            self._path(version, _CHECKPOINT).unlink()
        for version in versions:
            path = self._path(version)
            # The last one stays whatever its age: it is the one that `recover` looks at.
            if checkpoints and version < checkpoints[-1] and path.stat().st_ctime < older_than_s:
                path.unlink()

    def unreferenced(self) -> list[Path]:
        """Data files at places of the table's that no manifest names: a plain reader sees their rows."""
        return [
            path
            for path in data_files(self.folder)
            if str(path.relative_to(self.folder)) not in self._state.files
        ]

    # ---- reading the log

    def _read(self) -> TableState:
        """Raises TableError."""
        if not self._manifests.is_dir():
            if is_strange(self.folder):
                raise TableError(
                    f"{self.folder} is neither empty nor a table of `kraft ingest`: choose another folder."
                )
            return TableState()
        for _ in range(_READ_ATTEMPTS):
            try:
                return self._read_listed()
            except FileNotFoundError:
                continue  # a vacuum has removed what a later checkpoint sums up
        raise TableError(f"{self._manifests} changes faster than it can be read: try again.")

    def _read_listed(self) -> TableState:
        state = TableState()
        checkpoints, manifests = self._listed()
        if checkpoints:
            state.apply(self._load(checkpoints[-1], _CHECKPOINT))
        for version in manifests:
            if version <= state.version:
                continue
            if version != state.version + 1:
                raise TableError(
                    f"{self._path(state.version + 1)} is missing, and a later manifest is there: restore it from"
                    " a copy of the table's folder."
                )
            state.apply(self._load(version))
        return state

    def _listed(self) -> tuple[list[int], list[int]]:
        """The versions of the checkpoints, and of the manifests; ascending."""
        found: tuple[list[int], list[int]] = [], []
        for path in self._manifests.iterdir() if self._manifests.is_dir() else ():
            name = path.name.removesuffix(_MANIFEST)
            number = name.removesuffix(_CHECKPOINT)
            if name != path.name and number.isdecimal():
                found[0 if number != name else 1].append(int(number))
        return sorted(found[0]), sorted(found[1])

    def _load(self, version: int, kind: str = "") -> Manifest:
        path = self._path(version, kind)
        return decode(path.read_bytes(), str(path))

    def _path(self, version: int, kind: str = "") -> Path:
        return self._manifests / f"{version:0{_DIGITS}}{kind}{_MANIFEST}"


def create_file(path: Path, data: bytes) -> None:
    """A whole file, durable, under a name that nobody else has taken. Raises FileExistsError, OSError."""
    waiting = path.with_name(f".{path.name}.{os.getpid()}")
    waiting.write_bytes(data)
    sync(waiting)
    try:
        os.link(waiting, path)
    finally:
        waiting.unlink()
    sync(path.parent)


def move_file(source: Path, target: Path) -> None:
    """The target's folder is there. `sync` of both folders makes it durable."""
    source.rename(target)


def remove_tree(folder: Path) -> None:
    """One that is gone already is fine. It loses its name first: a process that outlived its run cannot put more into
    it then."""
    nameless = folder.with_name(f"{_REMOVED}{folder.name}")
    if nameless.is_dir():
        shutil.rmtree(nameless)
    if folder.is_dir():
        folder.rename(nameless)
        shutil.rmtree(nameless)


def _check_start(
    positions: dict[str, Position], key: PartitionKey, moved: CommitRange, cluster_id: str
) -> None:
    position = positions.get(key.application_id(cluster_id))
    if position is not None and position.offset != moved.start:
        raise CommitConflictError(
            f"{key.topic}-{key.partition}: the commit begins at offset {moved.start}, and the table ends at"
            f" {position.offset}: plan again from there."
        )
