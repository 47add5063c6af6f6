"""Moves a query of Spark's own Kafka source to this format: where it ended, as `startingOffsets`.

    stream.option("startingOffsets", starting_offsets("/data/checkpoints/orders"))

The old query must have ended. Give the new one a checkpointLocation of its own. A batch that the old one had planned
but not finished is read again. Its sink may hold that batch already, where the query died between the two: the old
query would have told it the same number, the new one counts from 0. A sink that remembers the numbers of batches knows
its last one, which `written` takes; otherwise run the old query to its end first, with `Trigger.AvailableNow`. Give the
new one a new folder (files) or another txnAppId (Delta), or its first batches are taken for written.
"""

from __future__ import annotations

import json
from pathlib import Path

from kraft.spark.errors import CheckpointError

_VERSION = "v1"
_LINES_BEFORE_SOURCES = 2


def starting_offsets(checkpoint: str | Path, *, source: int = 0, written: int | None = None) -> str:
    """The JSON for `startingOffsets` from a checkpoint folder of a query of format kafka.

    A checkpoint elsewhere than in a local folder is copied first: its `offsets` and `commits` are enough. `source` is
    the place, from 0 on, of the Kafka source among the query's sources. `written` is the last batch that the sink
    holds, if it knows (of Spark's files the highest number in their `_spark_metadata`); without it the last that the
    query finished counts. Raises CheckpointError.
    """
    folder = Path(checkpoint)
    finished = _batches(folder / "commits")
    planned = _batches(folder / "offsets")
    if not planned:
        raise CheckpointError(
            f"{folder} has no offsets: is it the checkpointLocation of a query that has run?"
        )
    if written is None and not finished:
        raise CheckpointError(
            f"No batch of the query of {folder} ever ended: start the new one as the old one was."
        )
    batch = max(finished) if written is None else written
    if batch not in planned:
        raise CheckpointError(
            f"{folder} has no offsets of batch {batch}, its last: copy all of the folder `offsets`."
        )
    if finished and batch < max(finished):
        raise CheckpointError(
            f"The query of {folder} has finished batch {max(finished)}, so that its sink holds more than batch {batch}."
        )
    version, *lines = (folder / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()
    sources = lines[_LINES_BEFORE_SOURCES - 1 :]
    if version != _VERSION or not 0 <= source < len(sources):
        raise CheckpointError(
            f"{folder / 'offsets' / str(batch)} has version {version!r} and {len(sources)} sources:"
            f" {_VERSION} and a source {source} are needed."
        )
    offsets = json.loads(sources[source])
    if not isinstance(offsets, dict) or not all(map(_is_by_partition, offsets.values())):
        raise CheckpointError(f"Source {source} of {folder} is not one of format kafka: {sources[source]}.")
    return sources[source]


def _is_by_partition(offsets: object) -> bool:
    return isinstance(offsets, dict) and all(isinstance(offset, int) for offset in offsets.values())


def _batches(folder: Path) -> set[int]:
    return {int(path.name) for path in folder.glob("*") if path.name.isdigit()}
