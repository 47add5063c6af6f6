"""Why the layer exists: the library as shipped breaks the promises that ours keeps under the same faults."""

import logging

import pytest

from tests.support.chain_machine import Violation
from tests.support.stock_raft import StockCluster


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", [25])
def test_small_batches_and_cut_links_alone_lose_acknowledged_entries(seed):
    with pytest.raises(Violation):
        StockCluster(seed, append_bytes=120).run()


@pytest.mark.parametrize("seed", [1, 13, 14])
def test_snapshots_let_a_stale_tail_be_applied(seed):
    with pytest.raises(Violation):
        StockCluster(seed, append_bytes=65536, snapshot_every_entries=20).run()


@pytest.mark.parametrize("seed", [1, 3, 12])
def test_power_loss_of_one_voter_at_a_time_forks_the_log(seed):
    with pytest.raises(Violation):
        StockCluster(seed, append_bytes=65536, power_loss=True).run()
