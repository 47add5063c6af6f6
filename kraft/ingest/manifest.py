"""The log of a Parquet table, as documents: one manifest a commit, and checkpoints that sum up all before them. Pure.

    {"format": 1, "version": 7, "add": […], "remove": […], "audit": […], "schema": "…"}

A manifest that changes the schema names it (Arrow's IPC form). A checkpoint names it too; its `add` are all files, its
`audit` the rows of each partition folded into few: it is bounded by files and partitions, however many commits were
made. `parquet.py` stores them.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from kraft.ingest.audit_folder import fold_rows
from kraft.ingest.audit_rows import row_from_json, row_to_json
from kraft.ingest.model import AuditRow, TableError, TableFile
from kraft.spark.stream_offsets import Position

FORMAT = 1
NO_VERSION = -1


@dataclass(frozen=True)
class Manifest:
    """One step of the table: a commit, a compaction, or (as a checkpoint) all steps up to its version."""

    version: int
    add: tuple[TableFile, ...] = ()
    remove: tuple[str, ...] = ()
    audit: tuple[AuditRow, ...] = ()
    schema: pa.Schema | None = None


@dataclass
class TableState:
    """What the manifests up to `version` make of the table."""

    version: int = NO_VERSION
    schema: pa.Schema | None = None
    files: dict[str, TableFile] = field(default_factory=dict)
    repeated: list[TableFile] = field(default_factory=list)
    """Files that were added although the table had them: no commit does that, a hand may."""
    audit: list[AuditRow] = field(default_factory=list)
    positions: dict[str, Position] = field(default_factory=dict)

    def apply(self, manifest: Manifest) -> None:
        """Takes the step; a checkpoint is the first."""
        self.version = manifest.version
        self.schema = self.schema if manifest.schema is None else manifest.schema
        for path in manifest.remove:
            self.files.pop(path, None)
        for file in manifest.add:
            if file.path in self.files:
                self.repeated.append(file)
            self.files[file.path] = file
        self.audit += manifest.audit
        for row in manifest.audit:
            name = row.key.application_id(row.cluster_id)
            self.positions[name] = Position(row.end, row.leader_epoch)

    def checkpoint(self) -> Manifest:
        """The whole state as one step."""
        files = (*self.files.values(), *self.repeated)
        return Manifest(self.version, files, (), tuple(fold_rows(self.audit)), self.schema)


def encode(manifest: Manifest) -> bytes:
    """As JSON."""
    document: dict[str, Any] = {"format": FORMAT, "version": manifest.version}
    if manifest.schema is not None:
        document["schema"] = base64.b64encode(manifest.schema.serialize()).decode()
    document["add"] = [file._asdict() for file in manifest.add]
    document["remove"] = list(manifest.remove)
    document["audit"] = [row_to_json(row) for row in manifest.audit]
    return json.dumps(document, separators=(",", ":")).encode()


def decode(data: bytes, name: str) -> Manifest:
    """`name` is the file's, for the sentence of the TableError that it raises."""
    try:
        document = json.loads(data)
        if document["format"] != FORMAT:
            raise TableError(
                f"{name} is of format {document['format']}, and this version of kraft knows only {FORMAT}:"
                " use the version that wrote the table, or a later one."
            )
        schema = document.get("schema")
        return Manifest(
            document["version"],
            tuple(TableFile(**file) for file in document["add"]),
            tuple(document["remove"]),
            tuple(row_from_json(row) for row in document["audit"]),
            None if schema is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema))),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise TableError(
            f"{name} is damaged ({error!r}): restore it from a copy of the table's folder."
        ) from error
