"""Guards of a log against a model: producers, markers, verifications and cuts in any order.

Whatever happens, a client's batch opens a transaction only where its verification began after the producer's last
marker, and the last stable offset never passes a transaction that is open.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from partitions.log.errors import AppendError
from partitions.log.producers.verifications import VerificationGuard
from partitions.records.markers import EndTransactionMarker
from tests.support.logs import memory_disk, open_log
from tests.support.transactions import ABORT, COMMIT, marker_of, put, transactional

PRODUCERS = (1, 2, 3)
EPOCH_FOR_EACH_TRANSACTION = (3,)
"""Producers of transaction.version 2; those of the others keep their epoch, and nothing but guards tells their
transactions apart."""
STEPS = st.tuples(
    st.sampled_from(["verify", "append", "append", "marker", "late marker", "cut"]),
    st.sampled_from(PRODUCERS),
    st.integers(0, 5),
)


class Verified:
    def __init__(self, producer: int, epoch: int, guard: VerificationGuard | None) -> None:
        self.producer = producer
        self.epoch = epoch
        self.guard = guard
        self.is_void = False


class GuardedLog:
    """A log, and what its coordinators know: the epoch of each producer's transaction."""

    def __init__(self) -> None:
        self.log = open_log(memory_disk())
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self.opened: dict[int, int] = {}
        self.verified: list[Verified] = []

    def verify(self, producer: int, number: int) -> None:
        epoch = self.epochs[producer]
        guard = self.log.begin_verification(
            producer, epoch, supports_epoch_bump=producer in EPOCH_FOR_EACH_TRANSACTION
        )
        assert (guard is None) == (producer in self.opened)
        self.verified.append(Verified(producer, epoch, guard))

    def append(self, producer: int, number: int) -> None:
        """A batch whose verification began at any time before."""
        mine = [one for one in self.verified if one.producer == producer]
        if not mine:
            return
        one = mine[number % len(mine)]
        entry = self.log.active_producers.get(producer)
        last = entry.last_sequence if entry is not None and entry.epoch == one.epoch else -1
        end = self.log.log_end_offset
        try:
            self.log.append_as_leader(
                transactional(producer, b"x", epoch=one.epoch, sequence=last + 1),
                leader_epoch=0,
                guard=one.guard,
            )
        except AppendError:
            is_late = one.epoch < self.epochs[producer]
            assert is_late or (producer not in self.opened and (one.is_void or one.guard is None))
            return
        if producer not in self.opened:
            assert one.guard is not None
            assert not one.is_void
            self.opened[producer] = end
            self.void(producer)  # it has served
        assert one.epoch == self.epochs[producer]

    def marker(self, producer: int, number: int) -> None:
        """The coordinator ends what is open, in this log or elsewhere only."""
        bumps = producer in EPOCH_FOR_EACH_TRANSACTION
        self.epochs[producer] += bumps
        kind = ABORT if number % 2 else COMMIT
        judged = self.log.producer_state.judge_marker(
            producer, self.epochs[producer], EndTransactionMarker(kind, 0), 2 if bumps else 1
        )
        assert judged
        put(self.log, marker_of(producer, kind, epoch=self.epochs[producer]))
        self.opened.pop(producer, None)
        self.void(producer)

    def late_marker(self, producer: int, number: int) -> None:
        """One that was written before comes again: it ends nothing."""
        epoch = max(self.epochs[producer] - number, 0)
        if producer not in self.log.active_producers or producer not in EPOCH_FOR_EACH_TRANSACTION:
            return
        try:
            judged = self.log.producer_state.judge_marker(producer, epoch, EndTransactionMarker(ABORT, 0), 2)
        except AppendError:
            return
        assert not judged
        assert producer not in self.opened

    def cut(self, producer: int, number: int) -> None:
        """A truncation takes the newest batch of an open transaction away, and voids all guards."""
        end = self.log.log_end_offset
        newest = max(self.opened, key=lambda known: self.opened[known], default=None)
        if newest is None or self.opened[newest] != end - 1:
            return
        self.log.truncate_to(end - 1)
        del self.opened[newest]
        for known in PRODUCERS:
            self.void(known)

    def void(self, producer: int) -> None:
        for one in self.verified:
            if one.producer == producer:
                one.is_void = True

    def check(self) -> None:
        stable = self.log.last_stable_offset(self.log.log_end_offset)
        assert stable == min(self.opened.values(), default=self.log.log_end_offset)


@settings(deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_no_batch_opens_a_transaction_under_a_void_guard(steps: list[tuple[str, int, int]]) -> None:
    world = GuardedLog()
    for name, producer, number in steps:
        getattr(world, name.replace(" ", "_"))(producer, number)
        world.check()
