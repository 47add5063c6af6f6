"""Whether a data directory is what was written: its own files, and every partition's folder in it.

Guarantees: what the directory's checkpoints say is known before the first partition is read, so that a
torn tail can be told from damage; a folder that is checked alone is judged by the directory around it.
The quorum's journal is not looked at (`quorum.raft.inspection` knows it). Called by `kraft log verify`.
"""

from __future__ import annotations

from typing import Final

from partitions.log.inspection.entries import (
    broker_epoch,
    meta_properties,
    metadata_position,
    offset_entries,
    placement_changes,
)
from partitions.log.inspection.files import ReadableDisk, StoredDamage, partition_of_folder, read_whole
from partitions.log.inspection.findings import Finding, Findings
from partitions.log.inspection.log_state import EVERYTHING, Expected
from partitions.log.inspection.partition_check import check_partition
from partitions.log.node_logs.data_directory import (
    CHECKPOINTS,
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSETS,
    DELETE_SUFFIX,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)
from partitions.log.node_logs.meta_properties import META_PROPERTIES, MetaProperties
from partitions.log.node_logs.metadata_position import METADATA_POSITION
from partitions.log.node_logs.placements import FILE_NAME as PARTITION_DIRECTORIES
from partitions.log.partition_files import PARTITION_METADATA, topic_id_text
from partitions.topic_partition import TopicPartition

JOURNAL_FOLDER: Final = "__cluster_metadata-0"


def is_data_directory(disk: ReadableDisk, path: str) -> bool:
    """Whether a folder was formatted for a node."""
    return disk.exists(f"{path}/{META_PROPERTIES}")


class DirectoryFiles:
    """What the files at the top of a data directory say."""

    def __init__(self, disk: ReadableDisk, path: str, findings: Findings) -> None:
        """Reads them. What is wrong with them is a finding."""
        self.path = path
        self._findings = findings
        self._disk = disk
        self.meta: MetaProperties | None = None
        self.checkpoints: dict[str, dict[TopicPartition, int]] = {}
        self._damaged: set[str] = set()
        marker = f"{path}/{CLEAN_SHUTDOWN_FILE}"
        self.clean_shutdown = disk.exists(marker)
        """The broker ended properly, and has not been started since."""
        meta_path = f"{path}/{META_PROPERTIES}"
        with findings.reading(meta_path):
            self.meta = meta_properties(meta_path, read_whole(disk, meta_path))
        if self.clean_shutdown:
            with findings.reading(marker):
                broker_epoch(marker, read_whole(disk, marker))
        position = f"{path}/{METADATA_POSITION}"
        if disk.exists(position):
            with findings.reading(position):
                metadata_position(position, read_whole(disk, position))
        for name in CHECKPOINTS:
            self._read_checkpoint(name)
        self.placed_here: set[TopicPartition] = set()
        """What the list of partitions says to be in this directory."""
        self._read_placements()

    def _read_checkpoint(self, name: str) -> None:
        path = f"{self.path}/{name}"
        offsets = self.checkpoints[name] = {}
        if self._disk.exists(path):
            self._damaged.add(name)
            with self._findings.reading(path):
                for placed in offset_entries(path, read_whole(self._disk, path)):
                    offsets[placed.partition] = placed.offset
                self._damaged.discard(name)

    def _read_placements(self) -> None:
        """A torn last line is what a crash leaves: the broker passes over it."""
        path = f"{self.path}/{PARTITION_DIRECTORIES}"
        if not self._disk.exists(path):
            return
        here = None if self.meta is None else self.meta.directory_id
        with self._findings.reading(path):
            content = read_whole(self._disk, path)
            try:
                for _, line in placement_changes(path, content):
                    if line.placement is not None and line.placement.directory_id == here:
                        self.placed_here.add(line.partition)
                    else:
                        self.placed_here.discard(line.partition)
            except StoredDamage as damage:
                if content.find(b"\n", damage.position) not in (-1, len(content) - 1):
                    raise
                self._findings.note(path, damage.position, f"a torn last line: {damage.reason}")

    def expected(self, partition: TopicPartition) -> Expected:
        """What is known about a partition here."""
        has_holes = self.checkpoints[CLEANER_OFFSETS].get(partition, 0) > 0
        recovery_point = self.checkpoints[RECOVERY_POINTS].get(partition, 0)
        if RECOVERY_POINTS in self._damaged:  # without it, nothing can be called a torn tail
            return Expected(has_holes=has_holes)
        return Expected(
            durable_to=EVERYTHING if self.clean_shutdown else recovery_point,
            was_closed=self.clean_shutdown,
            recovery_point=recovery_point,
            closed_at=self.checkpoints[RECOVERY_POINTS].get(partition) if self.clean_shutdown else None,
            high_watermark=self.checkpoints[HIGH_WATERMARKS].get(partition),
            log_start_offset=self.checkpoints[LOG_START_OFFSETS].get(partition),
            has_holes=has_holes,
        )


class DirectoryCheck:
    """The check of a data directory; several may share the findings."""

    def __init__(
        self, disk: ReadableDisk, path: str, findings: Findings, topic_ids: dict[str, tuple[bytes, str]]
    ) -> None:
        """`topic_ids` collects each topic's id and the file that named it first."""
        self._disk = disk
        self._path = path
        self._findings = findings
        self._topic_ids = topic_ids

    def run(self, *, has_holes: bool) -> None:
        """Checks everything. What cannot be read is a finding. Raises OSError if the folder cannot."""
        files = DirectoryFiles(self._disk, self._path, self._findings)
        names = self._disk.list_dir(self._path)
        present = set()
        for name in names:
            partition = partition_of_folder(name)
            if name == JOURNAL_FOLDER or partition is None:
                if name.endswith(DELETE_SUFFIX):
                    self._findings.note(
                        f"{self._path}/{name}", None, "it is to be deleted, and was not looked at"
                    )
                continue
            present.add(partition)
            expected = files.expected(partition)
            self._check(
                partition,
                f"{self._path}/{name}",
                expected._replace(has_holes=has_holes or expected.has_holes),
            )
        for checkpoint in CHECKPOINTS:
            for partition in sorted(set(files.checkpoints[checkpoint]) - present):
                self._findings.note(
                    f"{self._path}/{checkpoint}", None, f"it names {partition}, which has no folder here"
                )

        for partition in sorted(files.placed_here - present):
            self._findings.note(
                f"{self._path}/{PARTITION_DIRECTORIES}",
                None,
                f"it places {partition} here, which has no folder",
            )

    def _check(self, partition: TopicPartition, path: str, expected: Expected) -> None:
        topic_id = check_partition(self._disk, path, expected, self._findings)
        if topic_id is None:
            return
        metadata = f"{path}/{PARTITION_METADATA}"
        known, where = self._topic_ids.setdefault(partition.topic, (topic_id, metadata))
        if known != topic_id:
            self._findings.errors.append(
                Finding(
                    metadata,
                    0,
                    f"the topic id is {topic_id_text(topic_id)}, and {where} says {topic_id_text(known)}",
                )
            )


def expected_by_surroundings(disk: ReadableDisk, folder: str) -> Expected:
    """What the data directory around a partition's folder says about it; nothing if there is none.

    What is wrong with the directory's own files is not told: they were not asked about.
    """
    parent = folder.rpartition("/")[0]
    partition = partition_of_folder(folder)
    if partition is None or not is_data_directory(disk, parent):
        return Expected()
    return DirectoryFiles(disk, parent, Findings()).expected(partition)
