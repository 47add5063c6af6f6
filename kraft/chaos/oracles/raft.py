"""The judge of voters' promises to each other: one vote and one leader a term, and no committed entry is ever lost.

Judges one-controller-per-epoch, vote-once and, of metadata-agreement, that the log of every new Raft leader holds
every committed entry and that snapshots hold no other (Raft, sections 5.2, 5.4 and 7; KIP-595, KIP-630). Pure:
`probes_quorum` feeds it with the effects of each step of a Raft lane.
"""

from __future__ import annotations

from collections.abc import Callable

from kraft.chaos.oracles import events
from kraft.chaos.oracles.metadata import CommittedMetadata
from kraft.chaos.verdict import Verdicts

TermAt = Callable[[int], int | None]
"""The term of a voter's log entry at an index: None if the log ends before it, -1 if a snapshot covers it."""

COVERED = -1


class Quorum:
    """Votes, leaders and snapshots of all terms of a run."""

    def __init__(self, verdicts: Verdicts, metadata: CommittedMetadata) -> None:
        self._verdicts = verdicts
        self._metadata = metadata
        self._votes: dict[tuple[int, int], int] = {}
        self._leaders: dict[int, int] = {}
        self._controllers: dict[int, int] = {}

    def voted(self, voter: int, term: int, candidate: int) -> None:
        """Takes a voter's durable vote in `term` for `candidate`; it may repeat that vote."""
        first = self._votes.get((voter, term))
        if first is None:
            self._votes[voter, term] = candidate
            self._verdicts.happened(events.VOTE, f"of {voter} for {candidate} in term {term}")
        elif first != candidate:
            self._verdicts.violated(
                "vote-once", f"voter {voter} voted for {candidate} in term {term}, before for {first}"
            )

    def forget(self, voter: int) -> None:
        """Forgets a voter whose memory an injected fault took: it comes back and votes as a new one."""
        for voter_and_term in [key for key in self._votes if key[0] == voter]:
            del self._votes[voter_and_term]

    def led(self, node: int, term: int, term_at: TermAt) -> None:
        """Judges a voter that began to lead `term`: its log is complete if Raft holds."""
        first = self._leaders.setdefault(term, node)
        if first != node:
            self._verdicts.violated(
                "one-controller-per-epoch", f"voters {first} and {node} both led the quorum in term {term}"
            )
            return
        for offset in self._metadata.offsets:
            committed = self._metadata.entry_epoch(offset)
            found = term_at(offset)
            if committed is not None and committed < term and found != COVERED and found != committed:
                what = "nothing" if found is None else f"an entry of term {found}"
                self._verdicts.violated(
                    "metadata-agreement",
                    f"voter {node} was elected in term {term} with {what} at offset {offset}, where an entry of"
                    f" term {committed} was committed",
                )
                return

    def heard(self, node: int, term: int, leader: int) -> None:
        """Judges a voter that follows `leader` in `term`."""
        first = self._leaders.setdefault(term, leader)
        if first != leader:
            self._verdicts.violated(
                "one-controller-per-epoch",
                f"voter {node} follows {leader} in term {term}, which {first} leads",
            )

    def became_active(self, node: int, epoch: int) -> None:
        """Judges a voter that acts as the controller of `epoch` from now on."""
        first = self._controllers.get(epoch)
        if first is None:
            self._controllers[epoch] = node
            self._verdicts.happened(events.CONTROLLER_ELECTION, f"node {node} in epoch {epoch}")
        elif first != node:
            self._verdicts.violated(
                "one-controller-per-epoch", f"nodes {first} and {node} were both controllers of epoch {epoch}"
            )

    def snapshot(self, node: int, last_index: int, last_term: int, installed: bool) -> None:
        """Judges a voter's durable snapshot, which covers everything up to `last_index`."""
        self._verdicts.happened(
            events.SNAPSHOT_INSTALL if installed else events.METADATA_SNAPSHOT,
            f"node {node}, up to offset {last_index}",
        )
        committed = self._metadata.entry_epoch(last_index)
        if last_index > self._metadata.offset or (committed is not None and committed != last_term):
            self._verdicts.violated(
                "metadata-agreement",
                f"node {node} has a snapshot up to offset {last_index} of term {last_term}; committed is"
                f" {'an entry of term ' + str(committed) if committed is not None else 'nothing'} there",
            )
