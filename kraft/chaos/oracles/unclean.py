"""The judge of unclean elections: the losses that they excuse, and the reports that they demand.

Where a topic allows one (`unclean.leader.election.enable`), the new leader's log is the truth from the moment at
which the quorum commits the election. Records that it lacks are lost, and so are those that the former leader,
unaware of the election, still commits. No others may be. Judges unclean-election-reported: a leader elected
uncleanly, as allowed or as the last known leader, reports it, with the offset from which on other logs' records are
lost. Pure; `replication` owns it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kraft.chaos.oracles.metadata import CommittedMetadata
from kraft.chaos.oracles.partition_model import PartitionModel
from kraft.chaos.oracles.shadow_log import Batch
from kraft.chaos.verdict import Verdicts


class UncleanElections:
    """The unclean elections of all partitions."""

    def __init__(self, verdicts: Verdicts, metadata: CommittedMetadata) -> None:
        self._verdicts = verdicts
        self._metadata = metadata
        self._led: dict[tuple[str, int], tuple[PartitionModel, int]] = {}
        """The log ends of real unclean leaders at their election, by partition name and epoch."""

    def is_allowed(self, model: PartitionModel, leader_epoch: int) -> bool:
        """Whether the leader of this epoch was elected uncleanly, with its topic's leave."""
        metadata = self._metadata
        return metadata.elections.is_unclean(model.key, leader_epoch) and metadata.allows_unclean(model.key)

    def is_overruled(self, model: PartitionModel, leader_epoch: int) -> bool:
        """Whether an election that its topic allows has replaced the leader of this epoch uncleanly."""
        state = self._metadata.partition(model.key)
        return (
            state is not None
            and leader_epoch < state.leader_epoch
            and self._metadata.allows_unclean(model.key)
            and self._metadata.elections.was_unclean_after(model.key, leader_epoch)
        )

    def has_overruled(self, model: PartitionModel) -> bool:
        """Whether any leader was ever overruled: its followers believe it a little longer."""
        return self.is_overruled(model, 0)

    def doom(self, model: PartitionModel, node: int, batches: Sequence[Batch]) -> None:
        """Takes batches that an overruled leader commits, and that will be lost."""
        lost = [batch for batch in batches if not model.committed.contains(batch)]
        if lost:
            model.committed.excused.update(dict.fromkeys(lost))
            self._verdicts.excused(
                f"{self._metadata.name(model.key)}: {node} commits {len(lost)} batches from offset"
                f" {lost[0].base} on, though an unclean election has replaced it, as the topic allows"
            )

    def leads(self, model: PartitionModel, leader_epoch: int, log_end: int) -> None:
        """Takes the elected leader of this epoch, which begins to lead with a log that ends at `log_end`."""
        if self._metadata.elections.is_unclean(model.key, leader_epoch):
            self._led[self._metadata.name(model.key), leader_epoch] = (model, log_end)

    def judge(self, reported: Mapping[tuple[str, int], int], passed_over: Collection[str]) -> None:
        """`reported`: by partition name and epoch, the offset from which on other logs' records were reported lost.

        A leader whose process ended before its high watermark moved may not have reported. Partitions of topics that
        are gone are passed over: other topics may have had their name.
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
