"""`kraft log verify`: checks a data directory, a partition's folder or a single file, and sums up what it found.

The quorum's journal in a data directory is checked by the rules of its voter (`quorum.raft.inspection`), all else by
those of a log.
"""

from __future__ import annotations

import os
from typing import Any

from kraft.cli.log.dump import BatchDetail, dump_file
from kraft.user_error import EXIT_DONE, EXIT_FAILED, EXIT_UNDECIDED, EXIT_USAGE, UserError
from partitions.log.inspection.directory_check import (
    JOURNAL_FOLDER,
    DirectoryCheck,
    expected_by_surroundings,
    is_data_directory,
)
from partitions.log.inspection.files import (
    SEGMENT_KINDS,
    FileKind,
    ReadableDisk,
    StoredDamage,
    base_offset_of,
    file_kind,
    partition_of_folder,
)
from partitions.log.inspection.findings import Finding, Findings
from partitions.log.inspection.log_state import Expected
from partitions.log.inspection.partition_check import PartitionCheck, check_partition
from quorum.raft.inspection import (
    DamageError,
    FolderChangedError,
    MetadataFolder,
    NoMetadataError,
)

VERDICTS = {EXIT_DONE: "sound", EXIT_FAILED: "damaged", EXIT_UNDECIDED: "undecided"}


class LogVerification:
    """One run over some paths."""

    def __init__(self, disk: ReadableDisk, *, has_holes: bool) -> None:
        self._disk = disk
        self._has_holes = has_holes
        self._topic_ids: dict[str, tuple[bytes, str]] = {}
        self.findings = Findings()

    def check(self, path: str) -> None:
        """Checks one absolute path. Raises UserError if it is nothing that a log has."""
        if not os.path.isdir(path):
            self._check_file(path)
        elif is_data_directory(self._disk, path):
            self._check_directory(path)
        elif os.path.basename(path) == JOURNAL_FOLDER:
            self._check_journal(path)
        elif partition_of_folder(path) is not None:
            check_partition(self._disk, path, self._expected(path), self.findings)
        else:
            raise UserError(
                f"{path} is neither a data directory (it has no meta.properties) nor a partition's folder"
                " (TOPIC-NUMBER)",
                EXIT_USAGE,
            )

    def _check_directory(self, path: str) -> None:
        try:
            DirectoryCheck(self._disk, path, self.findings, self._topic_ids).run(has_holes=self._has_holes)
        except OSError as error:
            self._unreadable(path, error)
        journal = f"{path}/{JOURNAL_FOLDER}"
        if os.path.isdir(journal):
            self._check_journal(journal)

    def _expected(self, folder: str) -> Expected:
        expected = expected_by_surroundings(self._disk, folder)
        return expected._replace(has_holes=self._has_holes or expected.has_holes)

    def _check_journal(self, path: str) -> None:
        """A voter's snapshot and journal."""
        findings = self.findings
        findings.partitions += 1
        try:
            folder = MetadataFolder(self._disk, path)
            for _ in folder.entries(0):
                findings.records += 1
        except DamageError as damage:
            findings.error(damage.path, damage.position, damage.reason)
        except FolderChangedError as error:
            findings.unreadable.append(Finding(path, None, f"{error}; try again"))
        except NoMetadataError as error:
            findings.note(path, None, str(error))
        except OSError as error:
            self._unreadable(path, error)
        else:
            torn = folder.torn_tail
            if torn is not None:
                findings.note(torn.path, torn.position, f"a torn last entry: {torn.reason}")

    def _check_file(self, path: str) -> None:
        kind = file_kind(path)
        if kind is None:
            raise UserError(f"{path} is, by its name, no file that a log has", EXIT_USAGE)
        if not self._disk.exists(path):
            raise UserError(f"{path} does not exist", EXIT_USAGE)
        folder = path.rpartition("/")[0]
        if kind in SEGMENT_KINDS:
            self._check_segment(path, folder)
            return
        with self.findings.reading(path):
            for step in dump_file(self._disk, path, kind, BatchDetail(records=False, data=False)):
                if isinstance(step, StoredDamage):
                    raise step

    def _check_segment(self, path: str, folder: str) -> None:
        """A segment with its indexes: an index alone says nothing."""
        try:
            check = PartitionCheck(self._disk, folder, self._expected(folder), self.findings)
            check.check_segment(base_offset_of(path))
        except OSError as error:
            self._unreadable(folder, error)

    def _unreadable(self, path: str, error: OSError) -> None:
        reason = f"it cannot be read: {error.strerror or error}"
        self.findings.unreadable.append(Finding(error.filename or path, None, reason))

    # ---- what it amounts to

    @property
    def exit_code(self) -> int:
        """Damage outweighs what could not be read."""
        if self.findings.errors:
            return EXIT_FAILED
        return EXIT_UNDECIDED if self.findings.unreadable else EXIT_DONE

    def document(self) -> dict[str, Any]:
        """For --json."""
        found = self.findings
        return {
            "verdict": VERDICTS[self.exit_code],
            "partitions": found.partitions,
            "files": found.files,
            "batches": found.batches,
            "records": found.records,
            "log_bytes": found.log_bytes,
            "errors": [finding._asdict() for finding in found.errors],
            "unreadable": [finding._asdict() for finding in found.unreadable],
            "notes": [finding._asdict() for finding in found.notes],
            "left_out": dict(found.left_out),
        }

    def lines(self) -> list[str]:
        """For people: the worst comes last, and then the summary."""
        found = self.findings
        lines = [f"note: {finding}" for finding in found.notes]
        lines += [f"unreadable: {finding}" for finding in found.unreadable]
        lines += [f"damage: {finding}" for finding in found.errors]
        lines += [f"{count} more findings in {path}" for path, count in found.left_out.items()]
        lines.append(
            f"{VERDICTS[self.exit_code]}: {len(found.errors)} damaged places, {len(found.unreadable)} unreadable"
            f" files, {len(found.notes)} notes; {found.partitions} partitions, {found.files} files,"
            f" {found.batches} batches, {found.records} records, {found.log_bytes} bytes of log"
        )
        return lines


def logs_below(path: str) -> int:
    """How many bytes of `.log` files there are to read: for the progress bar."""
    if os.path.isfile(path):
        return os.path.getsize(path)
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            if file_kind(name) is FileKind.SEGMENT:
                try:
                    total += os.path.getsize(os.path.join(folder, name))
                except FileNotFoundError:
                    continue  # dropped meanwhile: an estimate will do
    return total
