"""The in-sync replicas of one partition, as its leader knows and proposes them (KIP-497).

Guarantees: at most one AlterPartition is in flight; the committed ISR changes only by what the
controller has committed (its answer, or metadata); and `maximal` contains every ISR that the controller
may have committed by now, so that a high watermark taken over it never passes a member of the real ISR.
`leadership.py` decides who joins and leaves, and owns one `IsrState` per leader epoch.

The life of a proposal:

    committed --expand/shrink--> in flight --success--> committed (the controller's ISR)
                                    |-- newer partition epoch from metadata --> committed (metadata's ISR)
                                    |-- refused for certain -------> committed (as before)
                                    |-- out of date ---------------> in flight, until metadata arrives
                                    '-- outcome unknown -----------> in flight, proposed again

An expand whose earlier attempt had an unknown outcome is not simply rolled back when a later attempt is
refused: a delayed copy of the first may still be accepted. It is withdrawn, by proposing the committed
ISR at the same partition epoch: once that is committed, the partition epoch fences every copy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

UNKNOWN_BROKER_EPOCH: Final = -1

_NOT_APPLIED: Final = frozenset({"INELIGIBLE_REPLICA", "OPERATION_NOT_ATTEMPTED"})
"""The controller (or this broker) says that the proposal was current and was not applied."""

_OUT_OF_DATE: Final = frozenset(
    {
        "FENCED_LEADER_EPOCH",
        "INVALID_REQUEST",
        "INVALID_UPDATE_VERSION",
        "NEW_LEADER_ELECTED",
        "UNKNOWN_TOPIC_ID",
        "UNKNOWN_TOPIC_OR_PARTITION",
    }
)
"""The controller knows more than this leader; what it knows arrives as metadata."""


class IsrChange(Enum):
    """What a proposal is for."""

    EXPAND = "expand"
    SHRINK = "shrink"
    WITHDRAW = "withdraw"


@dataclass(frozen=True, slots=True)
class AlterPartitionProposal:
    """One AlterPartition, as the leader wants it sent.

    `new_isr_with_epochs` holds (broker id, broker epoch); `sequence` tells the proposals of one leader
    epoch apart, so that a late answer is never taken for that of a younger proposal.
    """

    change: IsrChange
    leader_epoch: int
    partition_epoch: int
    new_isr_with_epochs: tuple[tuple[int, int], ...]
    sequence: int

    @property
    def new_isr(self) -> tuple[int, ...]:
        """The proposed members."""
        return tuple(broker_id for broker_id, _ in self.new_isr_with_epochs)


class IsrCommitted(NamedTuple):
    """The controller's answer: the partition's state after the change."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()


class AlterPartitionFailed(NamedTuple):
    """The controller's refusal, or that no answer came; `code` is Kafka's error name."""

    code: str


AlterPartitionResult: TypeAlias = IsrCommitted | AlterPartitionFailed


class Outcome(Enum):
    """What became of a proposal."""

    IGNORED = "ignored"
    """The answer is not for the proposal in flight."""
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    AWAITS_METADATA = "awaits metadata"
    RETRY = "retry"


class Resolution(NamedTuple):
    """The outcome, and what is to be sent after a back-off (RETRY only)."""

    outcome: Outcome
    proposal: AlterPartitionProposal | None = None


class IsrState:
    """The committed ISR and ELR, their partition epoch, and the proposal in flight."""

    __slots__ = ("_epoch_of", "_leader_epoch", "_sequence", "_uncertain", "_wide_was_refused", "committed",
                 "elr", "in_flight", "maximal", "partition_epoch")  # fmt: skip

    def __init__(
        self,
        *,
        isr: tuple[int, ...],
        elr: tuple[int, ...] = (),
        leader_epoch: int,
        partition_epoch: int,
        epoch_of: Callable[[int], int],
    ) -> None:
        """`epoch_of` gives the broker epoch that vouches for a member, -1 where none is known."""
        self.committed = isr
        self.elr = elr
        self.maximal = isr
        self.partition_epoch = partition_epoch
        self.in_flight: AlterPartitionProposal | None = None
        self._leader_epoch = leader_epoch
        self._epoch_of = epoch_of
        self._sequence = 0
        self._uncertain = False
        self._wide_was_refused = False
        """Whether the controller refused several at once for the sake of one: the next go one by one."""

    def adopt(self, isr: tuple[int, ...], elr: tuple[int, ...], partition_epoch: int) -> None:
        """Takes over a newer committed state; it settles whatever is in flight, since that is fenced now."""
        assert partition_epoch >= self.partition_epoch, "a partition epoch never goes back"
        self.committed = isr
        self.elr = elr
        self.partition_epoch = partition_epoch
        self._wide_was_refused = False
        self._clear()

    def expand(self, broker_id: int) -> AlterPartitionProposal:
        """Proposes one more member; from now on the high watermark waits for it."""
        assert broker_id not in self.committed, "the replica is in the ISR already"
        proposal = self._propose(IsrChange.EXPAND, (*self.committed, broker_id))
        self.maximal = proposal.new_isr
        return proposal

    def widen(self, joining: Collection[int]) -> AlterPartitionProposal:
        """Proposes more members in the place of an expand that `may_widen`.

        It must not have been sent, which only the caller knows: a copy of it might be committed while this
        one is in flight.
        """
        proposal = self.in_flight
        assert proposal is not None, "there is nothing to widen"
        assert self.may_widen, (
            "only an expand that was never sent, and that does well with others, is widened"
        )
        self.in_flight = None
        widened = self._propose(IsrChange.EXPAND, (*proposal.new_isr, *joining))
        self.maximal = widened.new_isr
        return widened

    @property
    def may_widen(self) -> bool:
        """Whether the proposal in flight, if it was never sent, may name more members.

        One that was tried may still be accepted as it is. And after a refusal of several, the one who is not
        eligible must not keep the others out: they are proposed one by one until the ISR changes.
        """
        return (
            self.in_flight is not None
            and self.in_flight.change is IsrChange.EXPAND
            and not self._uncertain
            and not self._wide_was_refused
        )

    def shrink(self, leaving: Collection[int]) -> AlterPartitionProposal:
        """Proposes to do without some members; until that is committed they still count."""
        staying = tuple(broker_id for broker_id in self.committed if broker_id not in leaving)
        assert staying, "the leader stays in the ISR"
        return self._propose(IsrChange.SHRINK, staying)

    def resolve(self, proposal: AlterPartitionProposal, result: AlterPartitionResult) -> Resolution:
        """Takes the answer to a proposal."""
        if proposal != self.in_flight:
            return Resolution(Outcome.IGNORED)
        if isinstance(result, IsrCommitted):
            if result.leader_epoch != self._leader_epoch or result.partition_epoch < self.partition_epoch:
                return Resolution(Outcome.AWAITS_METADATA)
            self.adopt(result.isr, result.elr, result.partition_epoch)
            return Resolution(Outcome.COMMITTED)
        if result.code in _NOT_APPLIED:
            if result.code == "INELIGIBLE_REPLICA" and len(proposal.new_isr) > len(self.committed) + 1:
                self._wide_was_refused = True
            return self._not_applied(proposal)
        if result.code in _OUT_OF_DATE:
            return Resolution(Outcome.AWAITS_METADATA)
        self._uncertain = True
        return Resolution(Outcome.RETRY, proposal)

    def _not_applied(self, proposal: AlterPartitionProposal) -> Resolution:
        may_still_grow = proposal.change is IsrChange.WITHDRAW or (
            proposal.change is IsrChange.EXPAND and self._uncertain
        )
        if may_still_grow:
            self.in_flight = None
            return Resolution(Outcome.RETRY, self._propose(IsrChange.WITHDRAW, self.committed))
        self._clear()
        return Resolution(Outcome.ROLLED_BACK)

    def _propose(self, change: IsrChange, isr: tuple[int, ...]) -> AlterPartitionProposal:
        assert self.in_flight is None, "only one AlterPartition may be in flight"
        self._sequence += 1
        self.in_flight = AlterPartitionProposal(
            change,
            self._leader_epoch,
            self.partition_epoch,
            tuple((broker_id, self._epoch_of(broker_id)) for broker_id in isr),
            self._sequence,
        )
        return self.in_flight

    def _clear(self) -> None:
        self.maximal = self.committed
        self.in_flight = None
        self._uncertain = False
