"""The judge of a new leader: it has every record committed before its epoch, or an excuse for each that it lacks.

Judges leader-completeness and no-committed-record-lost. Each missing batch needs an excuse: damage at all of ISR and
ELR, or leave for unclean elections. Pure; `replication` owns it.
"""

from __future__ import annotations

from kraft.chaos.oracles.excuse import is_excused
from kraft.chaos.oracles.metadata import CommittedMetadata
from kraft.chaos.oracles.partition_model import PartitionModel
from kraft.chaos.oracles.shadow_log import Batch, shown
from kraft.chaos.oracles.unclean import UncleanElections
from kraft.chaos.verdict import Verdicts
from quorum.metadata.image import PartitionImage


def candidates_of(state: PartitionImage | None) -> tuple[int, ...]:
    """The replicas that may be elected: the members of ISR and ELR, which have every committed record."""
    return () if state is None else (*state.isr, *state.elr)


class LeaderCompleteness:
    """The judge of new leaders."""

    def __init__(self, verdicts: Verdicts, metadata: CommittedMetadata, unclean: UncleanElections) -> None:
        self._verdicts = verdicts
        self._metadata = metadata
        self._unclean = unclean

    def judge(self, model: PartitionModel, node: int, leader_epoch: int) -> None:
        """Judges that a leader has every record committed before its epoch."""
        committed, log = model.committed, model.replicas.get(node)
        wanted = committed.before_epoch(leader_epoch)
        allowed = self._unclean.is_allowed(model, leader_epoch)
        # A leader that does not know of a flipped bit leads until a reader meets it.
        missing = wanted if log is None else [b for b in log.missing(wanted) if not log.is_rotten(b)]
        if allowed and log is not None:
            missing = list(dict.fromkeys((*committed.never_in(log.start, wanted), *missing)))
        if missing:
            self._judge_missing(model, node, leader_epoch, missing)
        elif (offset := self._end_of_history(model, node, allowed=allowed)) < committed.retained_from:
            self._judge_expired(model, node, leader_epoch, offset)

    def _judge_expired(self, model: PartitionModel, node: int, leader_epoch: int, offset: int) -> None:
        """Judges a new leader whose missing records, from `offset` on, have all expired. Nothing is lost, but their
        offsets go to others: that has its excuse, or is noticed when it happens."""
        committed, candidates = model.committed, candidates_of(self._metadata.partition(model.key))
        is_flushed = self._metadata.rules.is_flushed(model.key)
        reason = "the topic allows unclean elections"
        if not self._unclean.is_allowed(model, leader_epoch):
            expired = committed.expired_from(offset)
            if not expired or not all(
                is_excused(batch, candidates, model.replicas, is_flushed=is_flushed) for batch in expired
            ):
                return
            reason = f"what had expired was lost by all of ISR and ELR {candidates}"
        self._verdicts.excused(
            f"{self._metadata.name(model.key)}: leader {node} of epoch {leader_epoch} has what was committed up"
            f" to {offset}, retention has taken it up to {committed.retained_from}; {reason}"
        )
        committed.start_over(offset)

    def _end_of_history(self, model: PartitionModel, node: int, *, allowed: bool) -> int:
        """The offset up to which a new leader's log agrees with the committed records that expired. Only a leader
        whose unclean election its topic `allowed` may have other records there."""
        log = model.replicas.get(node)
        if log is None:
            return 0
        return model.committed.parts_from(log) if allowed else log.end

    def _judge_missing(
        self, model: PartitionModel, node: int, leader_epoch: int, missing: list[Batch]
    ) -> None:
        """Judges the committed batches that a new leader lacks: each has its excuse, or is a violation."""
        name = self._metadata.name(model.key)
        where = f"{name}: leader {node} of epoch {leader_epoch} lacks"
        state = self._metadata.partition(model.key)
        candidates = candidates_of(state)
        allowed = self._unclean.is_allowed(model, leader_epoch)
        is_flushed = self._metadata.rules.is_flushed(model.key)
        damaged = [
            batch for batch in missing if is_excused(batch, candidates, model.replicas, is_flushed=is_flushed)
        ]
        bare = [batch for batch in missing if batch not in damaged]
        if damaged:
            kinds = sorted({model.replicas[member].lost[batch] for member in candidates for batch in damaged})
            members = ", ".join(map(str, dict.fromkeys(candidates)))
            self._verdicts.excused(
                f"{name}: {shown(damaged)} is gone: every replica that had to have it (ISR and ELR: {members}) lost it"
                f" to {', '.join(kinds)}; leader {node} of epoch {leader_epoch} goes on without"
            )
        if bare and allowed:
            self._verdicts.excused(
                f"{name}: {shown(bare)} is gone: the topic allows unclean elections, and leader {node} of epoch"
                f" {leader_epoch} was elected without"
            )
            bare = []
        if bare:
            self._verdicts.violated(
                "leader-completeness", f"{where} {shown(bare)}; ISR and ELR are {candidates}"
            )
            told = [batch for batch in bare if model.committed.was_acknowledged(batch)]
            if told:
                self._verdicts.violated("no-committed-record-lost", f"{where} {shown(told)}, acknowledged")
        model.committed.give_up(missing)
        if not bare:
            model.committed.start_over(self._end_of_history(model, node, allowed=allowed))
