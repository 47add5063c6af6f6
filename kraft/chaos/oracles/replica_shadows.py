"""The events in the logs of replicas, entered into their shadows; `replication` judges the consequences.

A log is opened, appended to, truncated, cut by retention, deleted, damaged. Judges durable-records-cut: recovery does
not take a bit that rotted below the recovery point for a torn tail. Pure: `probes` feeds it, with the bytes of a disk
only when they have to be looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kraft.chaos.history import TopicKey
from kraft.chaos.oracles import events
from kraft.chaos.oracles.compaction import Cleaning, CleaningJudge
from kraft.chaos.oracles.excuse import damage, reopen
from kraft.chaos.oracles.partition_model import PartitionModel
from kraft.chaos.oracles.replication import Replication
from kraft.chaos.oracles.scan import sound_batches, without_displaced
from kraft.chaos.oracles.shadow_log import BIT_ROT, POWER_LOSS, Batch, ShadowLog
from kraft.chaos.verdict import Verdicts

Segments = Callable[[], Sequence[bytes]]
"""The bytes of a log's data files, in order of their base offsets."""


class ReplicaShadows:
    """Keeps the shadows of all logs."""

    def __init__(self, verdicts: Verdicts, replication: Replication) -> None:
        self._verdicts = verdicts
        self._replication = replication

    def opened(
        self,
        key: TopicKey,
        node: int,
        directory: str,
        start: int,
        end: int,
        segments: Segments,
        recovery_point: int = 0,
    ) -> None:
        """Takes a log that a process opened or made, and that it claims to hold from `start` to `end`."""
        model = self._replication.model(key)
        if model is None:
            return
        model.leading.pop(node, None)
        log = _shadow(model, node, directory, start)
        known = not log.uncertain and log.damaged_from is None and (log.start, log.end) == (start, end)
        if known:
            return
        lost = len(log.lost)
        on_disk = logical_batches(model, log, segments(), log.damaged_kind)
        given_up = reopen(log, on_disk, start, end, recovery_point)
        if len(log.lost) > lost:
            self._verdicts.happened(
                events.BATCH_DAMAGED, f"node {node} {directory}, when opened", len(log.lost) - lost
            )
        cut = [batch for batch in given_up if batch.next <= recovery_point]
        if cut:
            self._verdicts.violated(
                "durable-records-cut",
                f"{self._replication.name(key)}: node {node} opened its log, and of what was flushed up to"
                f" {recovery_point} it gave up {len(cut)} sound batches from offset {cut[0].base} on",
            )
        self._replication.gave_up(model, node, given_up, f"opened its log and found it to end at {end}")

    def appended(self, key: TopicKey, node: int, batches: Sequence[Batch], directory: str) -> None:
        """Takes batches written at the end of a log."""
        model = self._replication.model(key)
        if model is None:
            return
        log = _shadow(model, node, directory, batches[0].base if batches else 0)
        compaction = model.compaction
        for batch in batches:
            if compaction.is_known:
                batch = compaction.original(batch)
                self._fill(model, log, batch)
            if log.append(batch):
                self._verdicts.coverage[events.BATCH_BACK] += 1

    def _fill(self, model: PartitionModel, log: ShadowLog, follows: Batch) -> None:
        """Fills the hole that a follower skips with the originals that were compacted there, as absent."""
        if follows.base > log.end:
            for batch in _in_front_of(follows, log.end, model):
                if batch in model.compaction.removed:
                    log.append(batch)
                    log.absent[batch] = None
                    self._verdicts.coverage[events.HOLE_FOLLOWED] += 1

    def cleaned(self, cleaning: Cleaning) -> None:
        """Judges a cleaner's decision to put a segment into the place of others."""
        model = self._replication.partitions.get(cleaning.key)
        log = None if model is None else model.replicas.get(cleaning.node)
        if model is None or log is None:
            return
        name, committed = self._replication.name(cleaning.key), model.committed
        high_watermark = None if committed.went_back else committed.high_watermark
        judge = CleaningJudge(self._verdicts, name, cleaning, model.compaction, high_watermark)
        log.absent.update(dict.fromkeys(judge.judge()))

    def truncated(self, key: TopicKey, node: int, offset: int, end: int, *, done: bool) -> None:
        """Takes a log that was cut at `offset` and ends at `end`; not `done`: the cut failed or was killed
        half-way."""
        model = self._replication.partitions.get(key)
        log = None if model is None else model.replicas.get(node)
        if model is None or log is None:
            return
        absent = log.absent
        removed = log.cut(offset)
        log.start = min(log.start, log.end)
        if done:
            log.cut(end)  # below `offset`, if compaction left a hole there
            log.end = end
        else:
            log.uncertain, log.absent = True, absent  # batches found in its files later keep their holes
        if removed:
            text = f"node {node} {self._replication.name(key)} to {offset}, {len(removed)} batches"
            self._verdicts.happened(events.TRUNCATION, text)
            self._replication.gave_up(model, node, removed, f"truncated its log to {offset}")

    def restarted(self, key: TopicKey, node: int, offset: int, *, done: bool) -> None:
        """Takes a log that was emptied, to start anew at `offset`."""
        model = self._replication.partitions.get(key)
        log = None if model is None else model.replicas.get(node)
        if model is None or log is None:
            return
        absent = log.absent
        removed = log.restart_at(offset)
        if not done:
            log.uncertain, log.absent = True, absent  # as of a truncation
        self._verdicts.happened(events.LOG_RESET, f"node {node} {self._replication.name(key)} at {offset}")
        self._replication.gave_up(model, node, removed, f"emptied its log, to start at {offset}")

    def start_raised(self, key: TopicKey, node: int, offset: int, *, by_retention: bool) -> None:
        """Takes a log that gave up its oldest batches, by its own retention or because its leader had."""
        model = self._replication.partitions.get(key)
        log = None if model is None else model.replicas.get(node)
        if model is None or log is None or offset <= log.start:
            return
        if by_retention:
            self._verdicts.happened(
                events.RETENTION, f"node {node} {self._replication.name(key)} up to {offset}"
            )
            reach = model.committed.reach(log.between(0, offset), offset)
            if reach > model.committed.high_watermark:
                self._verdicts.violated(
                    "no-committed-record-lost",
                    f"{self._replication.name(key)}: retention at node {node} deleted up to {offset},"
                    f" but only what is below {model.committed.high_watermark} is committed",
                )
            model.committed.retain_from(reach)
        elif offset > model.committed.retained_from:
            gone = [batch for batch in log.batches if batch.next <= offset]
            log.start_at(offset)
            self._replication.gave_up(
                model, node, gone, f"moved its log start to {offset}, where nobody's is"
            )
        log.start_at(offset)

    def deleted(self, node: int, directory: str) -> None:
        """Takes the removal of a log's folder."""
        for model in self._replication.partitions.values():
            log = model.replicas.get(node)
            if log is not None and log.directory == directory:
                model.removed[node] = model.replicas.pop(node)
                self._replication.gave_up(model, node, log.batches, "deleted its log")

    def damaged(
        self, node: int, kind: str, segments_in: Callable[[str], Sequence[bytes]], *, is_running: bool
    ) -> None:
        """Takes a fault of `kind` that destroyed data on a node's disk just now. `segments_in`: by folder."""
        for key, model in self._replication.partitions.items():
            log = model.replicas.get(node)
            if log is None:
                continue
            on_disk = logical_batches(model, log, segments_in(log.directory), kind)
            count = damage(log, on_disk, kind, is_running=is_running)
            if count:
                self._verdicts.happened(
                    events.BATCH_DAMAGED,
                    f"node {node} {self._replication.name(key)} by {kind}, {count} batches",
                    count,
                )
            if (
                kind == POWER_LOSS
                and model.committed.has_acknowledged
                and all(replica.uncertain for replica in model.replicas.values())
                and self._replication.is_flushed(key)
            ):
                self._verdicts.happened(events.ALL_LOST_POWER, self._replication.name(key))


def _shadow(model: PartitionModel, node: int, directory: str, start: int) -> ShadowLog:
    """A node's log in this folder; one that begins at `start`, if it had none."""
    log = model.replicas.get(node)
    if log is None:
        log = model.replicas[node] = ShadowLog(directory, start, start)
    log.directory = directory
    return log


def _in_front_of(batch: Batch, low: int, model: PartitionModel) -> Sequence[Batch]:
    """The originals from offset `low` up to `batch` in a log that has `batch`.

    They are the committed batches there, as long as none was lost. An excused loss takes them out of the committed
    prefix; the next unclean leader may have all of them, compacted, and commit them again. Then the originals are
    those of other logs that have `batch`: two logs that share a batch share everything before it (KIP-101).
    """
    if model.committed.went_back:
        others = [log for log in model.replicas.values() if log.start <= low and log.contains(batch)]
        if others:
            return max((log.between(low, batch.base) for log in others), key=len)
    return model.committed.ever_between(low, batch.base)


def logical_batches(
    model: PartitionModel, log: ShadowLog, segments: Sequence[bytes], kind: str = ""
) -> Sequence[Batch]:
    """The originals of the sound batches in a log's files, after damage of `kind`.

    A bit that rotted in a header took nothing else: the log's batches are looked for behind it, and a batch whose
    rotten header names the offset of another does not take its place. A log without files has no originals, not even
    compacted ones: a wipe took those as well.
    """
    if not segments:
        return ()
    rotten = [batch for batch in log.lost if log.lost[batch] == BIT_ROT]
    compaction = model.compaction
    sought = compaction.sought(log.batches) if rotten or kind == BIT_ROT else ()
    found = sound_batches(segments, sought)
    if rotten:
        found = without_displaced(found, sought, compaction.sought(rotten))
    return compaction.logical(found, log.absent)
