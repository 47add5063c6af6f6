"""The rows of a table's audit as JSON: one object for what one commit took of one partition.

    {"cluster_id": "…", "topic": "orders", "topic_id": "mXb…", "partition": 0, "from": 0, "to": 23, "leader_epoch": 4,
     "records": 20, "control": 2, "aborted": 0, "holes": 1, "hole_ranges": [[7, 8]], "dead_letters": 0,
     "files": ["…parquet"], "cut_time_ms": 1700000000000}

records + control + aborted + holes = to - from. `delta.py` keeps them in files beside the data, `parquet.py` in its
manifests; `kraft ingest audit` reads them.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from kraft.ingest.model import (
    AuditRow,
    Commit,
    PartitionKey,
    RangeAudit,
    TableError,
    partition_key,
    topic_id_text,
)


def audit_rows(commit: Commit) -> list[AuditRow]:
    """Those of a commit, ascending by topic and partition."""
    audits: dict[PartitionKey, RangeAudit] = {}
    files: dict[PartitionKey, list[str]] = {}
    for result in sorted(commit.results, key=lambda result: result.part.start):
        key = partition_key(result.part)
        audits[key] = audits.get(key, RangeAudit()) + result.audit
        files.setdefault(key, []).extend(file.path for file in result.files)
    return [
        AuditRow(
            cluster_id=commit.cluster_id,
            topic=key.topic,
            topic_id=key.topic_id,
            partition=key.partition,
            start=taken.start,
            end=taken.end,
            leader_epoch=taken.leader_epoch,
            audit=audits.get(key, RangeAudit()),
            files=tuple(files.get(key, ())),
            cut_time_ms=commit.cut_time_ms,
        )
        for key, taken in sorted(commit.ranges.items())
    ]


def row_to_json(row: AuditRow) -> dict[str, Any]:
    return {
        "cluster_id": row.cluster_id,
        "topic": row.topic,
        "topic_id": topic_id_text(row.topic_id),
        "partition": row.partition,
        "from": row.start,
        "to": row.end,
        "leader_epoch": row.leader_epoch,
        "records": row.audit.records,
        "control": row.audit.control,
        "aborted": row.audit.aborted,
        "holes": row.audit.hole_offsets,
        "hole_ranges": [list(hole) for hole in row.audit.holes],
        "dead_letters": row.audit.dead_letters,
        "files": list(row.files),
        "cut_time_ms": row.cut_time_ms,
    }


def row_from_json(found: Mapping[str, Any]) -> AuditRow:
    """Raises TableError for anything that `row_to_json` does not make."""
    try:
        text = found["topic_id"]
        return AuditRow(
            cluster_id=found["cluster_id"],
            topic=found["topic"],
            topic_id=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)),
            partition=found["partition"],
            start=found["from"],
            end=found["to"],
            leader_epoch=found["leader_epoch"],
            audit=RangeAudit(
                records=found["records"],
                control=found["control"],
                aborted=found["aborted"],
                hole_offsets=found["holes"],
                holes=tuple((start, end) for start, end in found["hole_ranges"]),
                dead_letters=found["dead_letters"],
            ),
            files=tuple(found["files"]),
            cut_time_ms=found["cut_time_ms"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise TableError(f"An audit row of the table is damaged: {error!r} in {found!r}.") from error
