"""Unclean elections: what they may lose, and that they are told of.

Where a topic asks for one (`unclean.leader.election.enable`), the new leader's log is the truth from the moment
at which the quorum commits the election: what it lacks is lost, and so is whatever the leader before, that has
not heard of it, goes on to commit. Nothing else may be. Judges unclean-election-reported: whoever leads after
an unclean election, allowed or of the last known leader, says so, and from which offset on others' records are
lost. Pure; owned by `replication`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kraft.chaos.oracles.metadata import CommittedMetadata
from kraft.chaos.oracles.partition_model import PartitionModel
from kraft.chaos.oracles.shadow_log import Batch
from kraft.chaos.verdict import Verdicts


class UncleanElections:
    """Those of all partitions."""

    def __init__(self, verdicts: Verdicts, metadata: CommittedMetadata) -> None:
        self._verdicts = verdicts
        self._metadata = metadata
        self._led: dict[tuple[str, int], tuple[PartitionModel, int]] = {}
        """By partition name and epoch, of those who really led: where their logs ended then."""

    def is_allowed(self, model: PartitionModel, leader_epoch: int) -> bool:
        """Whether the leader of this epoch was elected uncleanly, as its topic asks for."""
        metadata = self._metadata
        return metadata.is_unclean(model.key, leader_epoch) and metadata.allows_unclean(model.key)

    def is_overruled(self, model: PartitionModel, leader_epoch: int) -> bool:
        """Whether an election that its topic allows has replaced the leader of this epoch uncleanly."""
        state = self._metadata.partition(model.key)
        return (
            state is not None
            and leader_epoch < state.leader_epoch
            and self._metadata.allows_unclean(model.key)
            and self._metadata.was_unclean_after(model.key, leader_epoch)
        )

    def has_overruled(self, model: PartitionModel) -> bool:
        """Whether that was ever so of some leader: its followers believe it a little longer."""
        return self.is_overruled(model, 0)

    def doom(self, model: PartitionModel, node: int, batches: Sequence[Batch]) -> None:
        """A leader that was overruled commits: nobody will keep it."""
        lost = [batch for batch in batches if not model.committed.contains(batch)]
        if lost:
            model.committed.excused.update(dict.fromkeys(lost))
            self._verdicts.excused(
                f"{self._metadata.name(model.key)}: {node} commits {len(lost)} batches from offset"
                f" {lost[0].base} on, though an unclean election has replaced it, as the topic allows"
            )

    def leads(self, model: PartitionModel, leader_epoch: int, log_end: int) -> None:
        """Who was elected in this epoch leads from now on, with a log that ends there."""
        if self._metadata.is_unclean(model.key, leader_epoch):
            self._led[self._metadata.name(model.key), leader_epoch] = (model, log_end)

    def judge(self, reported: Mapping[tuple[str, int], int], passed_over: Collection[str]) -> None:
        """`reported`: by partition name and epoch, from which offset on records of others were said to be lost.

        Whose process ended before its high watermark moved may not have come to say so. Partitions of topics
        that are gone are passed over: others may have had their name.
        """
        for (name, epoch), (model, end) in self._led.items():
            told = reported.get((name, epoch))
            if name in passed_over or (told is None and epoch not in model.seen):
                continue
            if told != end:
                self._verdicts.violated(
                    "unclean-election-reported",
                    f"{name}: the leader of epoch {epoch} was elected uncleanly, its log ended at {end}, and it"
                    f" said {told}",
                )
