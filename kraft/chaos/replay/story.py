"""What a replayed history is told by: the state of every replica after each step.

Values only; they are compared between two rules, printed side by side, and written as JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple


class StoredRecord(NamedTuple):
    """One record in a replica's log."""

    offset: int
    value: str
    epoch: int
    """Leader epoch of its batch."""

    def __str__(self) -> str:
        return f"{self.offset}:{self.value}/{self.epoch}"


@dataclass(frozen=True)
class ReplicaView:
    """A replica after a step; of a broker that is down only the role is known."""

    broker_id: int
    role: str
    """leader, follower, no leader, down."""
    records: tuple[StoredRecord, ...] = ()
    log_end_offset: int = -1
    high_watermark: int = -1
    leader_epoch: int = -1
    epochs: tuple[tuple[int, int], ...] = ()
    """The epoch cache: (epoch, start offset)."""

    def to_document(self) -> dict[str, Any]:
        return {
            "broker": self.broker_id,
            "role": self.role,
            "log": [record._asdict() for record in self.records],
            "leo": self.log_end_offset,
            "hw": self.high_watermark,
            "leader_epoch": self.leader_epoch,
            "epochs": [list(entry) for entry in self.epochs],
        }


@dataclass(frozen=True)
class Step:
    """One step of the script, and what it left."""

    number: int
    """From 1."""
    text: str
    replicas: tuple[ReplicaView, ...]
    leader: int
    """As the controller has it; -1: none."""
    leader_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    seen: tuple[str, ...]
    """What clients and the controller said in this step."""

    def differs(self, other: Step) -> bool:
        """Whether the two rules have parted by this step."""
        return replace(other, number=self.number, text=self.text, leader_epoch=self.leader_epoch) != self

    def to_document(self) -> dict[str, Any]:
        return {
            "step": self.number,
            "text": self.text,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "isr": list(self.isr),
            "elr": list(self.elr),
            "replicas": [replica.to_document() for replica in self.replicas],
            "seen": list(self.seen),
        }
