"""Votes and committed entries are on the platter when they count."""

import json
from collections.abc import Sequence

import pytest

from kraft.chaos.oracles.durability import Durability
from kraft.chaos.verdict import Verdicts
from kraft.chaos.world.inodes import Covered
from kraft.chaos.world.simulation import Simulation
from kraft.chaos.world.storage import Storage
from tests.unit.chaos.oracles.model import batch_bytes

VOTERS = (1, 2, 3)
JOURNAL = "/data/journal"
OFFSET = 5
SEGMENT = f"{JOURNAL}/00000000000000000001.log"


class Voters:
    """Three disks."""

    def __init__(self) -> None:
        simulation = Simulation(1, trace=False)
        self.verdicts = Verdicts(simulation.scheduler)
        self.disks = {voter: Storage(simulation.stream(str(voter))) for voter in VOTERS}
        self.durability = Durability(self.verdicts, self.disks.__getitem__, VOTERS)
        for disk in self.disks.values():
            disk.make_dirs(JOURNAL)
            disk.sync_everything()

    def write(self, path: str, data: bytes, voters: Sequence[int] = VOTERS, *, sync: bool = True) -> None:
        for voter in voters:
            disk = self.disks[voter]
            inode = disk.create_file(path)
            inode.write(disk.next_sequence(), 0, data)
            if sync:
                disk.sync_everything()

    def vote(self, term: int, candidate: int, *, sync: bool = True) -> None:
        body = json.dumps({"leaderEpoch": term, "votedId": candidate}).encode()
        self.write(f"{JOURNAL}/quorum-state", body + b"\n00000000\n", sync=sync)

    @property
    def oracles(self) -> list[str]:
        return [violation.oracle for violation in self.verdicts.violations]


@pytest.fixture
def voters() -> Voters:
    return Voters()


def test_a_durable_vote_may_be_given(voters: Voters) -> None:
    voters.vote(4, 2)
    voters.durability.vote(1, 4, 2, JOURNAL)
    assert voters.oracles == []


@pytest.mark.parametrize(("term", "candidate"), [(4, 3), (4, -1), (3, 2)])
def test_another_vote_is_no_vote(voters: Voters, term: int, candidate: int) -> None:
    voters.vote(term, candidate)
    voters.durability.vote(1, 4, 2, JOURNAL)
    assert voters.oracles == ["vote-once"]


def test_a_vote_of_an_older_term_cannot_be_given_twice(voters: Voters) -> None:
    voters.vote(5, -1)
    voters.durability.vote(1, 4, 2, JOURNAL)
    assert voters.oracles == []


def test_a_vote_in_the_page_cache_is_no_vote(voters: Voters) -> None:
    voters.vote(4, 2, sync=False)
    voters.durability.vote(1, 4, 2, JOURNAL)
    assert voters.oracles == ["vote-once"]


def test_a_vote_whose_file_has_no_durable_name_is_no_vote(voters: Voters) -> None:
    voters.vote(4, 2, sync=False)
    disk = voters.disks[1]
    disk.inode(f"{JOURNAL}/quorum-state").sync(Covered(disk.sequence, disk.sequence))
    voters.durability.vote(1, 4, 2, JOURNAL)
    assert voters.oracles == ["vote-once"]


def test_what_a_damaged_voter_promises_is_not_judged(voters: Voters) -> None:
    voters.durability.damaged(1)
    voters.durability.vote(1, 4, 2, JOURNAL)
    assert voters.oracles == []


def test_the_promises_of_the_other_voters_stay(voters: Voters) -> None:
    voters.durability.damaged(1)
    voters.durability.vote(2, 4, 2, JOURNAL)
    assert voters.oracles == ["vote-once"]


def test_a_damaged_voter_may_have_had_an_entry(voters: Voters) -> None:
    voters.write(SEGMENT, batch_bytes(OFFSET, epoch=1), (3,))
    voters.durability.damaged(1)
    voters.durability.committed(OFFSET, 1, JOURNAL)
    assert voters.oracles == []


def test_the_others_make_up_the_rest_of_the_majority(voters: Voters) -> None:
    voters.durability.damaged(1)
    voters.durability.committed(OFFSET, 1, JOURNAL)
    assert voters.oracles == ["metadata-agreement"]
    assert "perhaps at [1]" in voters.verdicts.violations[0].text


@pytest.mark.parametrize("offset", range(8))
def test_every_entry_is_looked_for(voters: Voters, offset: int) -> None:
    voters.durability.committed(offset, 1, JOURNAL)
    assert voters.oracles == ["metadata-agreement"]


def test_an_entry_is_found_among_others(voters: Voters) -> None:
    journal = b"".join(batch_bytes(offset, epoch=1) for offset in range(2 * OFFSET))
    voters.write(SEGMENT, journal)
    for offset in range(2 * OFFSET):
        voters.durability.committed(offset, 1, JOURNAL)
    assert voters.oracles == []


def test_a_majority_has_a_committed_entry(voters: Voters) -> None:
    voters.write(SEGMENT, batch_bytes(OFFSET, epoch=1), (1, 3))
    voters.durability.committed(OFFSET, 1, JOURNAL)
    assert voters.oracles == []


@pytest.mark.parametrize("epoch", [1, 2])
def test_one_voter_of_three_is_no_majority(voters: Voters, epoch: int) -> None:
    voters.write(SEGMENT, batch_bytes(OFFSET, epoch=epoch), (1,))
    voters.write(SEGMENT, batch_bytes(OFFSET, epoch=3 - epoch), (2, 3) if epoch == 1 else ())
    voters.durability.committed(OFFSET, epoch, JOURNAL)
    assert voters.oracles == ["metadata-agreement"]


def test_an_entry_in_the_page_cache_does_not_count(voters: Voters) -> None:
    voters.write(SEGMENT, batch_bytes(OFFSET, epoch=1), (1,))
    voters.write(SEGMENT, batch_bytes(OFFSET, epoch=1), (2, 3), sync=False)
    voters.durability.committed(OFFSET, 1, JOURNAL)
    assert voters.oracles == ["metadata-agreement"]


def test_a_snapshot_covers_an_entry(voters: Voters) -> None:
    voters.write(SEGMENT, batch_bytes(OFFSET, epoch=1), (1,))
    voters.write(f"{JOURNAL}/{OFFSET + 1:020d}-0000000001.checkpoint", b"", (2,))
    voters.durability.committed(OFFSET, 1, JOURNAL)
    assert voters.oracles == []


def test_a_snapshot_covers_nothing_behind_its_end(voters: Voters) -> None:
    voters.write(SEGMENT, batch_bytes(OFFSET, epoch=1), (1,))
    voters.write(f"{JOURNAL}/{OFFSET:020d}-0000000001.checkpoint", b"", (2, 3))
    voters.durability.committed(OFFSET, 1, JOURNAL)
    assert voters.oracles == ["metadata-agreement"]
