"""The results of compaction: the forms of a partition's batches, and the judgement of each cleaning.

A cleaned batch has other bytes, or is gone. For all other oracles it is still the original batch: a shadow keeps the
original, and `CompactedBatches` knows every form that a cleaner gave it. So holes are allowed where a cleaning left
them, and nowhere else. `CleaningJudge` judges each cleaned segment when it takes the place of others:

- newest-of-key-kept: a record goes only if a later committed record of its key replaces it, or its transaction was
  aborted; what was aborted, or is not decided yet, replaces nothing; the rest stays unchanged;
- marker-kept: a transaction's marker gets a horizon, and stays until then and as long as a batch of the transaction
  has records: without it aborted records would be read as committed;
- tombstone-kept: a tombstone gets a horizon of delete.retention.ms and stays until then (KIP-534);
- cleaned-below-high-watermark: uncommitted records are not touched, and no record goes for their sake.

Pure: `probes_cleaner` feeds it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kraft.chaos.history import TopicKey, Value
from kraft.chaos.keyed import value_of
from kraft.chaos.oracles import events
from kraft.chaos.oracles.shadow_log import Batch
from kraft.chaos.verdict import Verdicts
from partitions.records.batch import BatchHeader, CorruptBatchError, decode_records, iter_batches
from partitions.records.markers import marker_in
from partitions.records.record import Record

DECOMPRESSED_MAX_BYTES = 1 << 20


class Content(NamedTuple):
    """One batch with its records."""

    batch: Batch
    header: BatchHeader
    records: tuple[Record, ...]
    newest: Mapping[bytes, int]
    """By key: the offset of its last record in this batch."""

    @property
    def identity(self) -> tuple[object, ...]:
        """The parts that a cleaning leaves as they are."""
        header = self.header
        return (
            self.batch.next,
            self.batch.epoch,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
        )


class CompactedBatches:
    """All forms of the batches of one partition, made by any replica's cleaner."""

    __slots__ = ("_forms", "_opened", "lapsed", "removed")

    def __init__(self) -> None:
        self._forms: dict[tuple[int, int, int], int] = {}
        """By base offset, next offset and CRC of a cleaned batch: the CRC of the original."""
        self._opened: dict[Batch, Content] = {}
        self.removed: dict[Batch, None] = {}
        """Batches that some replica has lost entirely to its cleaner."""
        self.lapsed: dict[int, Value] = {}
        """Tombstones that some replica has dropped, by offset."""

    @property
    def is_known(self) -> bool:
        """Whether a cleaning ever took place."""
        return bool(self._forms or self.removed)

    def original(self, batch: Batch) -> Batch:
        """This batch before any cleaning."""
        crc = self._forms.get((batch.base, batch.next, batch.crc))
        return batch if crc is None else batch._replace(crc=crc)

    def became(self, batch: Batch, crc: int) -> None:
        """Notes the content that a cleaning gave to the original `batch`."""
        self._forms[batch.base, batch.next, crc] = batch.crc

    def logical(self, found: Sequence[Batch], absent: Collection[Batch]) -> Sequence[Batch]:
        """The originals behind a log with the batches `found` in its files, in order."""
        if not self._forms and not absent:
            return found
        return sorted({*map(self.original, found), *absent})

    def sought(self, batches: Sequence[Batch]) -> Sequence[Batch]:
        """Every form that these originals may have in a file, in order."""
        if not self._forms:
            return batches
        originals: dict[tuple[int, int, int], list[Batch]] = {}
        for batch in batches:
            originals.setdefault((batch.base, batch.next, batch.crc), []).append(batch)
        forms = {
            batch._replace(crc=crc)
            for (base, end, crc), original in self._forms.items()
            for batch in originals.get((base, end, original), ())
        }
        return sorted(forms.union(batches))

    def contents(self, segments: Iterable[bytes]) -> Iterator[Content]:
        """The contents of the batches of some segments; an unreadable rest of a segment is skipped."""
        for data in segments:
            try:
                for position, header in iter_batches(data):
                    yield self._content(data, position, header)
            except CorruptBatchError:
                continue

    def _content(self, data: bytes, position: int, header: BatchHeader) -> Content:
        batch = Batch(header.base_offset, header.next_offset, header.partition_leader_epoch, header.crc)
        content = self._opened.get(batch)
        if content is None:
            records = tuple(
                decode_records(data, position, header, max_decompressed_bytes=DECOMPRESSED_MAX_BYTES)
            )
            newest = {record.key: record.offset for record in records if record.key is not None}
            content = self._opened[batch] = Content(batch, header, records, newest)
        return content


class Cleaning(NamedTuple):
    """One cleaned segment that takes the place of others in a log."""

    key: TopicKey
    node: int
    old: Sequence[bytes]
    """The replaced segments."""
    new: bytes
    whole_log: Sequence[bytes]
    """All segments, the replaced ones included."""
    began_ms: int
    """When the cleaning began, by the node's wall clock."""
    delete_retention_ms: int


class CleaningJudge:
    """Judges one cleaning, and enters the new form of each batch into `batches`."""

    def __init__(
        self,
        verdicts: Verdicts,
        where: str,
        cleaning: Cleaning,
        batches: CompactedBatches,
        high_watermark: int | None,
    ) -> None:
        """`high_watermark`: the highest that a leader reached; None if committed records were lost since: a log may
        then hold records that are no longer committed."""
        self._verdicts = verdicts
        self._where = f"{where}: the cleaner of node {cleaning.node}"
        self._cleaning = cleaning
        self._batches = batches
        self._high_watermark = high_watermark
        self._newest: dict[bytes, int] = {}
        """By key: its last committed record in this log."""
        self._newest_of_all: dict[bytes, int] = {}
        self._aborted: set[int] = set()
        """The base offsets of batches whose transactions were aborted."""
        self._ended_by: dict[int, list[Content]] = {}
        """By the base offset of a marker: the batches of its transaction."""

    def judge(self) -> list[Batch]:
        """Runs all oracles. Returns the originals that are gone entirely."""
        self._learn()
        contents = self._batches.contents
        kept_of = {content.batch.base: content for content in contents([self._cleaning.new])}
        new = dict(kept_of)
        gone: list[Batch] = []
        removed = end = 0
        old = list(contents(self._cleaning.old))
        for content in old:
            kept = new.pop(content.batch.base, None)
            removed += self._judge_batch(content, kept)
            original, end = self._batches.original(content.batch), content.batch.next
            if kept is None:
                gone.append(original)
            elif kept.batch.crc != content.batch.crc:
                self._batches.became(original, kept.batch.crc)
        for content in new.values():
            self._violated("newest-of-key-kept", f"made {_shown(content)}, where there was nothing")
        self._judge_markers(old, kept_of)
        self._batches.removed.update(dict.fromkeys(gone))
        if removed:
            self._verdicts.happened(events.COMPACTED, f"{self._where}, up to {end}", removed)
        return gone

    def _learn(self) -> None:
        """Finds the transactions' ends, then the last record of each key. A marker that is not committed ends
        nothing."""
        whole = list(self._batches.contents(self._cleaning.whole_log))
        open_of: dict[int, list[Content]] = {}
        for content in whole:
            header = content.header
            if header.is_control:
                marker = marker_in(content.records)
                if marker is None or not self._is_committed(content):
                    continue
                ended = self._ended_by[content.batch.base] = open_of.pop(header.producer_id, [])
                if marker.is_abort:
                    self._aborted.update(batch.batch.base for batch in ended)
            elif header.is_transactional:
                open_of.setdefault(header.producer_id, []).append(content)
        undecided = {content.batch.base for batches in open_of.values() for content in batches}
        for content in whole:
            if content.header.is_control or content.batch.base in self._aborted:
                continue
            self._newest_of_all.update(content.newest)
            if content.batch.base not in undecided and self._is_committed(content):
                self._newest.update(content.newest)

    def _is_committed(self, content: Content) -> bool:
        return self._high_watermark is None or content.batch.next <= self._high_watermark

    def _judge_batch(self, content: Content, kept: Content | None) -> int:
        """Judges one batch; returns how many records it lost."""
        if not self._is_committed(content):
            self._violated(
                "cleaned-below-high-watermark",
                f"took up {_shown(content)}; committed is what lies below {self._high_watermark}",
            )
        left = {record.offset: record for record in kept.records} if kept else {}
        went = 0
        for record in content.records:
            found = left.pop(record.offset, None)
            if found is None:
                went += not content.header.is_control
                self._judge_removed(content, record)
            elif found != record:
                self._violated("newest-of-key-kept", f"changed the record at offset {record.offset}")
        if left or (kept is not None and kept.identity != content.identity):
            self._violated("newest-of-key-kept", f"made something else of {_shown(content)}")
        if kept is not None and kept.records:
            self._judge_horizon(content, kept)
        return went

    def _judge_removed(self, content: Content, record: Record) -> None:
        if content.header.is_control or content.batch.base in self._aborted:
            return  # markers are judged apart; what was aborted may go at any time
        if record.key is None or self._newest.get(record.key, -1) > record.offset:
            return
        horizon_ms, later = content.header.delete_horizon_ms, self._newest_of_all.get(record.key, -1)
        if record.value is None and horizon_ms is not None and horizon_ms <= self._cleaning.began_ms:
            self._verdicts.happened(events.TOMBSTONE_LAPSED, f"{self._where}, offset {record.offset}")
            self._batches.lapsed[record.offset] = value_of(record.key, record.value, record.headers)
        elif later > record.offset:
            self._violated(
                "cleaned-below-high-watermark",
                f"dropped offset {record.offset} for the sake of {later}; committed is what lies below"
                f" {self._high_watermark}, in transactions that have ended",
            )
        elif record.value is None:
            self._violated(
                "tombstone-kept",
                f"dropped the tombstone at offset {record.offset} at {self._cleaning.began_ms} ms; its horizon"
                f" is {horizon_ms} ms",
            )
        else:
            self._violated(
                "newest-of-key-kept", f"dropped offset {record.offset}, the last one of key {record.key!r}"
            )

    def _judge_markers(self, old: Sequence[Content], kept_of: Mapping[int, Content]) -> None:
        """Judges the markers that are gone: whether their time had come, and whether anything needs them."""
        cleaned = {content.batch.base for content in old}
        for content in old:
            kept = kept_of.get(content.batch.base)
            if not content.header.is_control or not content.records or (kept is not None and kept.records):
                continue
            horizon_ms = content.header.delete_horizon_ms
            if horizon_ms is None or horizon_ms > self._cleaning.began_ms:
                self._violated(
                    "marker-kept",
                    f"dropped the marker at offset {content.batch.base} at {self._cleaning.began_ms} ms; its"
                    f" horizon is {horizon_ms} ms",
                )
            for batch in self._ended_by.get(content.batch.base, ()):
                left = kept_of.get(batch.batch.base) if batch.batch.base in cleaned else batch
                if left is not None and left.records:
                    self._violated(
                        "marker-kept",
                        f"dropped the marker at offset {content.batch.base}, and {_shown(batch)} of its transaction"
                        " has records",
                    )

    def _judge_horizon(self, content: Content, kept: Content) -> None:
        """Judges the horizon, which a batch gets once, delete.retention.ms ahead."""
        before, after = content.header.delete_horizon_ms, kept.header.delete_horizon_ms
        due_ms = self._cleaning.began_ms + self._cleaning.delete_retention_ms
        if after != before and (before is not None or after != due_ms):
            self._violated(
                "tombstone-kept",
                f"gave batch {content.batch.base} the delete horizon {after} ms in the place of {before} ms; a new"
                f" one is {due_ms} ms",
            )

    def _violated(self, oracle: str, text: str) -> None:
        self._verdicts.violated(oracle, f"{self._where} {text}")


def _shown(content: Content) -> str:
    """A batch, for people."""
    return f"batch {content.batch.base}-{content.batch.next - 1} of epoch {content.batch.epoch}"
