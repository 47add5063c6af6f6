"""Which transactional batches may open a transaction in a log: those that a guard stands for (KIP-890).

A leader takes a guard before it asks the transaction coordinator whether a partition is part of the producer's
transaction, and appends under it when the answer has come. A marker of the producer that comes between the two voids
the guard: the transaction that was asked for is over, and a batch that opened another would never be ended.
Guarantees: a guard that was voided never holds again; one that holds was taken after the producer's last marker. In
the leader's memory only: a truncation and a lost leadership void all. Kept by `ProducerState`. Pure.
"""

from __future__ import annotations

from typing import Final

VERIFICATIONS_MAX: Final = 10_000
"""In one log; the oldest is voided for a new one, and its producer aborts."""


class VerificationGuard:
    """One producer id whose next batch is being verified. All that is verified meanwhile shares it."""

    __slots__ = ("epoch", "lowest_sequence", "producer_id", "supports_epoch_bump", "taken_ms")

    def __init__(
        self, producer_id: int, epoch: int, sequence: int, *, supports_epoch_bump: bool, taken_ms: int
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.lowest_sequence = sequence
        """Of the newest epoch: a later batch does not overtake one whose verification failed."""
        self.supports_epoch_bump = supports_epoch_bump
        """Whether each of its transactions has an epoch of its own, and so begins with sequence 0."""
        self.taken_ms = taken_ms

    def also_for(self, epoch: int, sequence: int, *, supports_epoch_bump: bool) -> None:
        """Another batch of the producer is verified."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
            self.supports_epoch_bump = supports_epoch_bump
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence


VERIFICATION_OFF: Final = VerificationGuard(-1, -1, -1, supports_epoch_bump=False, taken_ms=0)
"""Stands for every batch, where transaction.partition.verification.enable is off."""


class Verifications:
    """The guards of one log."""

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        self._guards: dict[int, VerificationGuard] = {}

    def __len__(self) -> int:
        return len(self._guards)

    def begin(
        self, producer_id: int, epoch: int, sequence: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard:
        """The producer's guard, from now on or from an earlier batch on."""
        guard = self._guards.get(producer_id)
        if guard is not None:
            guard.also_for(epoch, sequence, supports_epoch_bump=supports_epoch_bump)
            return guard
        if len(self._guards) >= VERIFICATIONS_MAX:
            del self._guards[next(iter(self._guards))]
        guard = VerificationGuard(
            producer_id, epoch, sequence, supports_epoch_bump=supports_epoch_bump, taken_ms=now_ms
        )
        self._guards[producer_id] = guard
        return guard

    def holds(self, guard: VerificationGuard, producer_id: int) -> bool:
        """Whether a batch of this producer may be appended under the guard."""
        return guard is VERIFICATION_OFF or self._guards.get(producer_id) is guard

    def void(self, producer_id: int) -> None:
        """A marker of the producer was written, or the batch that was verified."""
        self._guards.pop(producer_id, None)

    def void_all(self) -> None:
        """The log leads no more, or was cut."""
        self._guards.clear()

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Voids those that nothing came of."""
        for producer_id in [
            known for known, guard in self._guards.items() if now_ms - guard.taken_ms >= expiration_ms
        ]:
            del self._guards[producer_id]
