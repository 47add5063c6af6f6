"""Why the layer exists: the library as shipped breaks the promises that ours keeps, before the same judge."""

import logging

import pytest

from kraft.chaos.quorum.judge import RaftJudge, Violation
from tests.support.stock_raft import StockCluster


class ForgivingJudge(RaftJudge):
    """Looks away when a voter takes back what it promised: what comes of that?"""

    def looked_at(self, voter, log, *, whole_step=True):
        return super().looked_at(voter, log, whole_step=False)

    def restarted(self, voter, term, voted_for, log):
        self.forget(voter)


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def broken_by(seed, **settings):
    """The oracle that the library fails with this seed; None if it holds."""
    try:
        StockCluster(seed, **settings).run()
    except Violation as violation:
        return violation.oracle
    return None


@pytest.mark.parametrize("seed", [8, 25])
def test_small_batches_and_cut_links_alone_take_acknowledged_entries_away(seed):
    assert broken_by(seed, append_bytes=120) == "no-needless-truncation"


@pytest.mark.parametrize("seed", [8, 25])
def test_and_so_committed_entries_are_lost_without_any_crash(seed):
    assert broken_by(seed, append_bytes=120, judge=ForgivingJudge()) == "leader-completeness"


@pytest.mark.parametrize("seed", [1, 13, 14])
def test_snapshots_let_a_stale_tail_be_applied(seed):
    judge = ForgivingJudge()
    assert broken_by(seed, append_bytes=65536, snapshot_every_entries=20, judge=judge) == "applied-prefix"


@pytest.mark.parametrize(("seed", "oracle"), [(1, "durable-acknowledgement"), (3, "durable-vote")])
def test_power_loss_takes_what_was_promised(seed, oracle):
    assert broken_by(seed, append_bytes=65536, power_loss=True) == oracle


@pytest.mark.parametrize("seed", [1, 3, 12])
def test_and_so_a_leader_is_elected_that_lacks_what_was_committed(seed):
    judge = ForgivingJudge()
    assert broken_by(seed, append_bytes=65536, power_loss=True, judge=judge) == "leader-completeness"
