"""A voter minds nothing that is not on the list, and no folder that is not its own; one that does is seen."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from kraft.chaos.quorum import folders
from kraft.chaos.quorum.judge import ORACLES, Violation
from kraft.chaos.quorum.machine import BareBytes, WatchedMachine
from kraft.chaos.quorum.quorum import Quorum
from kraft.chaos.quorum.settings import Settings
from kraft.chaos.quorum.strangers import insult
from kraft.chaos.quorum.voter import Voter
from partitions.log.node_logs.meta_properties import MetaProperties
from quorum.raft import messages, storage

QUIET = Settings()


def leader(seed: int = 1) -> Voter:
    quorum = Quorum(seed, QUIET)
    quorum.start()
    assert quorum.run_until(5.0, lambda: quorum.leader() is not None)
    found = quorum.leader()
    assert found is not None
    return found


def test_a_voter_stays_as_it_was() -> None:
    voter, rng = leader(), Random(1)
    assert voter.driver is not None
    for _ in range(200):
        assert insult(voter.driver, rng)


def test_a_voter_without_links_hears_nobody() -> None:
    voter = leader()
    for peer in voter.world.sessions.peers_of(voter.node_id):
        voter.world.sessions.disconnect(voter.node_id, peer)
    voter.world.run_until(voter.world.scheduler.now + 0.1)  # type: ignore[attr-defined]
    assert voter.driver is not None
    assert not insult(voter.driver, Random(1))


def test_a_voter_that_obeys_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    voter, rng = leader(), Random(1)
    assert voter.driver is not None
    monkeypatch.setattr(messages, "_check_shape", lambda message: None)
    with pytest.raises(Violation) as seen:
        all(insult(voter.driver, rng) for _ in range(200))
    assert seen.value.oracle == "only-listed-messages"
    assert seen.value.oracle in ORACLES


@pytest.mark.parametrize("workload", ["bytes", "topics"])
def test_no_voter_begins_in_a_folder_that_is_not_its_own(workload: str) -> None:
    quorum = Quorum(1, replace(QUIET, workload=workload))
    rng = Random(1)
    for _ in range(20):
        folders.check_refuses_wrong_folder(quorum, 1, bytes(16), WatchedMachine(BareBytes()), rng)


def test_a_voter_that_begins_anywhere_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = Quorum(1, QUIET)

    def any_folder(disk: object, directory: str, *, cluster_id: str, node_id: int) -> MetaProperties:
        return MetaProperties(cluster_id, node_id, "any")

    monkeypatch.setattr(storage, "check_meta_properties", any_folder)
    with pytest.raises(Violation) as seen:
        folders.check_refuses_wrong_folder(quorum, 1, bytes(16), WatchedMachine(BareBytes()), Random(1))
    assert seen.value.oracle == "own-folder"
    assert seen.value.oracle in ORACLES
