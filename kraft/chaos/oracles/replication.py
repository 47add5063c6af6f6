"""The oracles of replicated data: the replicas of all partitions against the committed records.

Judges leader-completeness, leader-candidate-completeness, log-matching, high-watermark-monotonic,
high-watermark-bounded, strong-isr, no-committed-record-lost, consistent-read, one-leader-per-epoch and, of topics with
flush.messages=1, counted-before-flushed. Each is judged
when its facts change, in time proportional to the change. The rules are those of Kafka's TLA+ models and KIP-101, 497,
841, 903 and 966; `excuse` has the only excuse. Pure: `probes` feeds it with the events of logs and partitions,
`metadata` with the newest committed state.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from kraft.chaos.history import TopicKey
from kraft.chaos.oracles.excuse import is_excused
from kraft.chaos.oracles.leader_completeness import LeaderCompleteness, candidates_of
from kraft.chaos.oracles.metadata import CommittedMetadata
from kraft.chaos.oracles.partition_model import LeaderView, PartitionModel
from kraft.chaos.oracles.shadow_log import BIT_ROT, Batch, ShadowLog, shown
from kraft.chaos.oracles.unclean import UncleanElections
from kraft.chaos.verdict import Verdicts
from quorum.metadata.image import PartitionImage

RunningEpoch = Callable[[int], int | None]
"""The broker epoch of a node's present process; None without a process, or before it has registered."""


class Replication:
    """All existing partitions. `running_epoch` tells which incarnations count."""

    def __init__(
        self,
        verdicts: Verdicts,
        metadata: CommittedMetadata,
        running_epoch: RunningEpoch,
        has_failed_directory: Callable[[int], bool] = lambda node: False,
        durable_end: Callable[[int, str], int] = lambda node, directory: sys.maxsize,
    ) -> None:
        """`has_failed_directory`: whether a fault makes fsyncs of a node fail. `durable_end`: up to where the log in a
        folder of a node is on the platter."""
        self._verdicts = verdicts
        self._metadata = metadata
        self._running_epoch = running_epoch
        self._has_failed_directory = has_failed_directory
        self._durable_end = durable_end
        self._gone: set[bytes] = set()
        self._names: dict[TopicKey, str] = {}
        self._names_of_gone: set[str] = set()
        self._past: dict[TopicKey, PartitionModel] = {}
        self._unclean = UncleanElections(verdicts, metadata)
        self._leaders = LeaderCompleteness(verdicts, metadata, self._unclean)
        self.partitions: dict[TopicKey, PartitionModel] = {}
        metadata.on_partition = self.isr_changed
        metadata.on_topic_gone = self.topic_gone

    def model(self, key: TopicKey) -> PartitionModel | None:
        """The partition's model, made at its first event; None once its topic is gone."""
        model = self.partitions.get(key)
        if model is None and key[0] not in self._gone:
            model = self.partitions[key] = PartitionModel(key)
            self._names[key] = self._metadata.name(key)
        return model

    def replica(self, key: TopicKey, node: int) -> ShadowLog | None:
        """The shadow of a node's log; None if there is none or the topic is gone."""
        model = self.partitions.get(key)
        return None if model is None else model.replicas.get(node)

    def topic_gone(self, topic_id: bytes) -> None:
        """Forgets a deleted topic and all promises about it."""
        self._gone.add(topic_id)
        for key in [key for key in self.partitions if key[0] == topic_id]:
            self._past[key] = self.partitions.pop(key)
            self._names_of_gone.add(self._names[key])

    # -- high watermarks

    def high_watermark_raised(
        self, key: TopicKey, node: int, before: int, offset: int, view: LeaderView | None
    ) -> None:
        """Judges a replica that moves its high watermark; `view` is None at a follower."""
        model = self.partitions.get(key)
        log = None if model is None else model.replicas.get(node)
        if model is None or log is None:
            return
        if offset < before:
            self._violated(
                "high-watermark-monotonic", model, f"node {node} moves it from {before} to {offset}"
            )
        if offset > log.end:
            self._violated(
                "high-watermark-bounded",
                model,
                f"node {node} moves it to {offset}, behind its log end {log.end}",
            )
        if view is not None and self._unclean.is_overruled(model, view.epoch):
            model.seen[view.epoch] = max(offset, model.seen.get(view.epoch, 0))
            self._unclean.doom(model, node, log.between(before, offset))
            return
        committed = model.committed
        known = committed.high_watermark
        self._compare(model, node, log, before, min(offset, known), is_leader=view is not None)
        if view is not None:
            if offset < model.seen.get(view.epoch, 0):
                self._went_back(model, node, view.epoch, offset)
            model.seen[view.epoch] = max(offset, model.seen.get(view.epoch, 0))
            if offset > known:
                self._commit(model, node, log, offset, view)
        else:
            self._judge_flushed(model, node, log.between(before, offset), f"follower {node} shows")
        if view is None and offset > known and not self._unclean.has_overruled(model):
            self._violated(
                "high-watermark-bounded",
                model,
                f"follower {node} moves it to {offset}; no leader had it above {known}",
            )

    def consumer_saw(self, key: TopicKey, node: int, leader_epoch: int, high_watermark: int) -> None:
        """Judges a leader's answer to a consumer."""
        model = self.partitions.get(key)
        if model is None:
            return
        seen = model.seen.get(leader_epoch, 0)
        if high_watermark < seen:
            self._went_back(model, node, leader_epoch, high_watermark)
        elif high_watermark > seen:
            model.seen[leader_epoch] = high_watermark

    def consumer_saw_at_follower(self, key: TopicKey, node: int, high_watermark: int) -> None:
        """Judges a follower's answer to a consumer (KIP-392): it may know less than its leader, never more."""
        model = self.partitions.get(key)
        if model is None or model.committed.went_back:
            return
        if high_watermark > model.committed.high_watermark:
            self._violated(
                "high-watermark-bounded",
                model,
                f"follower {node} shows a consumer {high_watermark}; no leader had it above"
                f" {model.committed.high_watermark}",
            )

    def _went_back(self, model: PartitionModel, node: int, leader_epoch: int, offset: int) -> None:
        self._violated(
            "high-watermark-monotonic",
            model,
            f"in epoch {leader_epoch} it was {model.seen[leader_epoch]}, and leader {node} has it at {offset}",
        )

    def _compare(
        self, model: PartitionModel, node: int, log: ShadowLog, low: int, high: int, *, is_leader: bool
    ) -> None:
        """Judges that a high watermark newly covers the records first committed there."""
        low = max(low, model.committed.retained_from, log.start)
        if high <= low:
            return
        mine, theirs = log.between(low, high), model.committed.between(low, high)
        if mine == theirs:
            return
        excused = model.committed.excused
        wrong = [batch for batch in mine if batch not in theirs and batch not in excused]
        wrong = wrong or [batch for batch in theirs if batch not in mine and batch not in log.lost]
        if wrong:
            text = f"node {node} shows offsets {low} to {high - 1}; {shown(wrong)} is not what was committed there"
            self._violated("log-matching", model, text)
            if is_leader:
                self._violated("consistent-read", model, text)

    def _commit(
        self, model: PartitionModel, node: int, log: ShadowLog, offset: int, view: LeaderView
    ) -> None:
        """Judges a leader that commits new records."""
        committed = model.committed
        new = log.between(committed.high_watermark, offset)
        state = self._metadata.partition(model.key)
        isr = view.isr if state is None else state.isr
        wanted = self._metadata.rules.min_insync_replicas(model.key)
        min_isr = 0 if wanted is None else min(wanted, view.replicas)
        if len(view.isr) < min_isr:
            self._violated(
                "strong-isr",
                model,
                f"leader {node} commits {shown(new)} with an ISR of {view.isr};"
                f" min.insync.replicas asks for {min_isr}",
            )
        candidates = isr if state is None else candidates_of(state)
        for member in view.maximal_isr:
            if member == node or self._counts(member):
                self._judge_flushed(model, member, new, f"leader {node} commits")
        for member in dict.fromkeys((*candidates, *view.maximal_isr)):
            missing = self._missing(model, member, new) if member != node else []
            if not missing:
                continue
            if member in isr:
                self._violated(
                    "strong-isr",
                    model,
                    f"leader {node} commits {shown(missing)}, which ISR member {member} lacks",
                )
            # A replica that was moved away may remove its log before the leader hears that it no longer counts.
            if member in view.maximal_isr and (state is None or member in state.replicas):
                never_had = missing if member in candidates else self._never_had(model, member, missing)
                if never_had:
                    self._violated(
                        "high-watermark-bounded",
                        model,
                        f"leader {node} moves it to {offset}; {member} of the maximal ISR lacks {shown(never_had)}",
                    )
            if member in candidates and self._counts(member):
                self._violated(
                    "leader-candidate-completeness",
                    model,
                    f"{member} of ISR and ELR {candidates} lacks {shown(missing)}, and the high watermark is"
                    f" {offset}",
                )
        committed.commit(new, offset, view.epoch)

    def _judge_flushed(self, model: PartitionModel, node: int, batches: Sequence[Batch], who: str) -> None:
        """Judges that a replica has on its platter what it lets count, where its topic asks for that."""
        log = model.replicas.get(node)
        if log is None or not batches or not self.is_flushed(model.key) or self._has_failed_directory(node):
            return
        end = self._durable_end(node, log.directory)
        unflushed = [
            batch for batch in batches if batch.next > end and log.holds(batch) and batch not in log.absent
        ]
        if unflushed:
            self._violated(
                "counted-before-flushed",
                model,
                f"{who} {shown(unflushed)}, and node {node} has its log on the platter up to {end}",
            )

    def leader_acknowledged(self, key: TopicKey, node: int, base_offset: int) -> None:
        """Judges an acknowledgement of acks=1 of records that begin there."""
        model = self.partitions.get(key)
        log = None if model is None else model.replicas.get(node)
        if model is not None and log is not None:
            batches = [batch for batch in log.batches if batch.base == base_offset]
            self._judge_flushed(model, node, batches, f"leader {node} acknowledges with acks=1")

    def is_flushed(self, key: TopicKey) -> bool:
        """Whether nothing of the topic counts before it is flushed."""
        return self._metadata.rules.is_flushed(key)

    def _missing(self, model: PartitionModel, member: int, wanted: list[Batch]) -> list[Batch]:
        """The batches that a replica never had, or gave up by itself. Those that damage took do not count: a leader
        cannot know of that loss before the replica comes back under another registration."""
        other = model.replicas.get(member)
        if other is None:
            return wanted
        return [batch for batch in other.missing(wanted) if batch not in other.lost]

    def _never_had(self, model: PartitionModel, member: int, missing: list[Batch]) -> list[Batch]:
        """The missing batches that the replica's removed log did not hold either. A replica that may no longer be
        elected may make a damaged log anew, before the leader hears that it no longer counts."""
        removed = model.removed.get(member)
        if removed is None:
            return missing
        return [batch for batch in removed.missing(missing) if batch not in removed.lost]

    def _counts(self, member: int) -> bool:
        """Whether a broker runs under its registered incarnation."""
        epoch = self._running_epoch(member)
        return epoch is not None and epoch == self._metadata.broker_epoch(member)

    # -- leaders and members

    def became_leader(self, key: TopicKey, node: int, leader_epoch: int, high_watermark: int) -> None:
        """Judges a broker that begins to lead in a leader epoch."""
        model = self.model(key)
        if model is None:
            return
        model.leading[node] = leader_epoch
        first = model.leaders.setdefault(leader_epoch, node)
        chosen = self._metadata.leader_in(key, leader_epoch)
        if first != node or chosen not in (None, node):
            other = first if first != node else chosen
            self._violated(
                "one-leader-per-epoch", model, f"{node} leads in epoch {leader_epoch}, which is {other}'s"
            )
        if high_watermark < model.seen.get(leader_epoch, 0):
            self._went_back(model, node, leader_epoch, high_watermark)
        log = model.replicas.get(node)
        self._unclean.leads(model, leader_epoch, 0 if log is None else log.end)
        self._leaders.judge(model, node, leader_epoch)

    def isr_changed(self, key: TopicKey, before: PartitionImage | None, after: PartitionImage) -> None:
        """Judges a newly committed state of a partition: its members must have every committed record."""
        model = self.model(key)
        if model is None:
            return
        # Several changes at once hide the states in between; an unclean election among them counts.
        first = -1 if before is None else before.leader_epoch
        for epoch, leader in self._metadata.elections.unclean_leaders(key, first + 1, after.leader_epoch):
            if self._unclean.is_allowed(model, epoch):
                self._leaders.judge(model, leader, epoch)
        if before is not None and _members(before) == _members(after):
            return
        if after.leader >= 0 and self._unclean.is_allowed(model, after.leader_epoch):
            self._leaders.judge(model, after.leader, after.leader_epoch)  # it is the whole ISR from now on
        if before is not None and after.offline_replicas != before.offline_replicas:
            self._judge_damaged(model, before, after)
        high_watermark = model.committed.high_watermark
        joined = set(candidates_of(after)).difference(candidates_of(before))
        for member in candidates_of(after):
            log = model.replicas.get(member)
            end = 0 if log is None else log.end
            if (end < high_watermark or member in joined) and self._counts(member):
                self._judge_member(model, member, after)

    def _judge_damaged(self, model: PartitionModel, before: PartitionImage, after: PartitionImage) -> None:
        """Judges that a replica that goes offline with a damaged log is not eligible, unless no other is. A replica
        whose directory failed may be whole, and stays eligible.
        """
        for member in set(after.offline_replicas).difference(before.offline_replicas):
            log = model.replicas.get(member)
            others = [one for one in candidates_of(after) if one != member]
            if member not in candidates_of(after) or not others or log is None:
                continue
            rotten = [batch for batch in log.lost if log.lost[batch] == BIT_ROT]
            if rotten and not self._has_failed_directory(member):
                self._violated(
                    "leader-candidate-completeness",
                    model,
                    f"{member} is offline for damage to {shown(rotten)}, and stays in the ISR {after.isr} or the"
                    f" ELR {after.elr}",
                )

    def _judge_member(self, model: PartitionModel, member: int, state: PartitionImage) -> None:
        committed, log = model.committed, model.replicas.get(member)
        wanted = committed.between(committed.retained_from, committed.high_watermark)
        if log is None:
            bare = wanted
        else:
            bare = [batch for batch in log.missing(wanted) if not log.is_rotten(batch)]
        bare = [batch for batch in bare if not self._is_excused(model, batch, candidates_of(state))]
        if bare:
            self._violated(
                "leader-candidate-completeness",
                model,
                f"{member} of the ISR {state.isr} or ELR {state.elr} lacks {shown(bare)}, and the high watermark"
                f" is {committed.high_watermark}",
            )

    # -- losses

    def _is_excused(self, model: PartitionModel, batch: Batch, members: Sequence[int]) -> bool:
        return is_excused(batch, members, model.replicas, is_flushed=self.is_flushed(model.key))

    def gave_up(self, model: PartitionModel, node: int, batches: Sequence[Batch], why: str) -> None:
        """Judges batches that a replica dropped by itself: truncated, restarted, deleted."""
        committed = model.committed
        gone = [
            batch for batch in batches if committed.contains(batch) and batch.next > committed.retained_from
        ]
        if not gone:
            return
        state = self._metadata.partition(model.key)
        candidates = candidates_of(state)
        if node in candidates and self._counts(node):
            self._violated(
                "leader-candidate-completeness",
                model,
                f"{node} of ISR and ELR {candidates} {why}, and gave up the committed {shown(gone)}",
            )
        # Both are empty after unclean starts of all: then the partition waits for the last known leader.
        heirs = candidates or (() if state is None else state.last_known_elr)
        kept_by_none = [
            batch
            for batch in gone
            if not any(m in model.replicas and model.replicas[m].holds(batch) for m in heirs)
            and not self._is_excused(model, batch, heirs)
        ]
        if kept_by_none:
            self._violated(
                "no-committed-record-lost",
                model,
                f"node {node} {why}, and none of ISR and ELR {candidates}, or the last known leader, has the committed"
                f" {shown(kept_by_none)}",
            )

    # -- clients

    def acknowledged(self, key: TopicKey, base_offset: int, values: Sequence[bytes]) -> None:
        """Takes an acknowledgement of an acks=-1 send to a client."""
        model = self.partitions.get(key)
        if model is None:
            return
        wrong = model.committed.acknowledge(base_offset, tuple(values))
        # Produce names topics by name: a broker that has not heard of a deletion puts the records into the former
        # topic of the name. The history checker knows of namesakes as well.
        if wrong is not None and self._names[key] not in self._names_of_gone:
            self._violated("no-committed-record-lost", model, f"acknowledged were {wrong}")

    def explains(self, key: TopicKey, offset: int, value: bytes) -> bool:
        """Whether that record was committed, is gone, and may be gone."""
        model = self.partitions.get(key) or self._past.get(key)
        return model is not None and model.committed.explains(offset, value)

    def has_excused_loss(self, topic: str, partition: int) -> bool:
        """Whether committed records of a partition of that name are gone with an excuse."""
        topic_id = self._metadata.image.topic_ids.get(topic)
        model = None if topic_id is None else self.partitions.get((topic_id, partition))
        return model is not None and model.committed.went_back

    def judge_reports(self, reported: Mapping[tuple[str, int], int]) -> None:
        """Judges, at the end, that every unclean election was reported; see `UncleanElections.judge`."""
        self._unclean.judge(reported, self._names_of_gone)

    def name(self, key: TopicKey) -> str:
        """A partition's name for people."""
        return self._metadata.name(key)

    def _violated(self, oracle: str, model: PartitionModel, text: str) -> None:
        self._verdicts.violated(oracle, f"{self._metadata.name(model.key)}: {text}")


def _members(state: PartitionImage) -> tuple[tuple[int, ...], ...]:
    return state.isr, state.elr, state.offline_replicas
