"""Voters that lose their disks, one after the other, in whole quorums under faults: nothing that was committed
is lost. Without the rules it is."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kraft.chaos.outcome import Outcome
from kraft.chaos.quorum import counters
from kraft.chaos.quorum.run import run
from kraft.chaos.quorum.settings import QuorumScenario, drawn
from quorum.raft.voters import VoterBook

WIPES_PER_S = 9.0
"""Where the last new disk counts again."""


def play_with_wipes(seed: int, voters: int) -> Outcome | None:
    """None where the seed's voters are known by number alone."""
    mine = drawn(seed, voters)
    if mine.workload == "bytes":
        return None
    return run(QuorumScenario(seed, replace(mine, faults={**mine.faults, "wipe": WIPES_PER_S})))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**31), voters=st.sampled_from((3, 5)))
def test_a_lost_disk_loses_nothing_that_was_committed(seed: int, voters: int) -> None:
    outcome = play_with_wipes(seed, voters)
    assume(outcome is not None)
    assert outcome is not None
    assert outcome.violations == []


def test_new_disks_are_admitted_again_and_again() -> None:
    outcomes = [outcome for seed in range(24) if (outcome := play_with_wipes(seed, 3)) is not None]
    assert [one for outcome in outcomes for one in outcome.violations] == []
    assert sum(outcome.coverage.get("fault: wipe", 0) for outcome in outcomes) >= 5
    assert sum(outcome.coverage.get(counters.VOTER_RECORDED, 0) for outcome in outcomes) > 3 * len(outcomes)


@pytest.mark.parametrize("broken", ["any directory counts", "a majority founds"])
def test_without_the_rules_committed_entries_are_lost(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if broken == "any directory counts":
        monkeypatch.setattr(VoterBook, "counts", lambda book, voter, directory_id: True)
    else:
        monkeypatch.setattr(VoterBook, "quorum", property(lambda book: len(book.voters) // 2 + 1))
    for seed in range(150):
        outcome = play_with_wipes(seed, 3)
        if outcome is not None and {"leader-completeness", "one-leader-per-term"}.intersection(
            outcome.oracles
        ):
            return
    raise AssertionError("nothing was lost: the rule is not needed, or the judges are asleep")
