"""What transactional clients tell the white box, and ask it: the port of `kraft.chaos.oracles.probes_transactions`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from kraft.chaos.history import TopicKey
from kraft.chaos.transaction_history import TransactionHistory


class WatchesTransactions(Protocol):
    """The white box, as transactional clients know it."""

    history: TransactionHistory

    def is_forgotten(self, transactional_id: str) -> bool:
        """Whether what is known of the transactional id lost committed records, and may."""

    def is_cut(self, key: TopicKey) -> bool:
        """Whether a partition lost committed records, and may: transactions' markers among them, perhaps."""

    def may_hang(self, key: TopicKey) -> bool:
        """Whether injected faults explain that a transaction in this partition never ends."""

    def is_beyond_repair(self, transactional_id: str) -> bool:
        """Whether every copy of what is known of the transactional id is damaged: only an operator can help then."""


@dataclass
class UnwatchedTransactions:
    """For runs without a white box."""

    history: TransactionHistory = field(default_factory=TransactionHistory)

    def is_forgotten(self, transactional_id: str) -> bool:
        return False

    def is_cut(self, key: TopicKey) -> bool:
        return False

    def may_hang(self, key: TopicKey) -> bool:
        return False

    def is_beyond_repair(self, transactional_id: str) -> bool:
        return False
