"""Which losses faults of disks explain, by the metadata journal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kraft.chaos.experiments.evidence import Journal, MetadataChange
from kraft.chaos.real.journal import DiskLoss, has_change, is_explained, read_journal
from tests.support.metadata_files import FOLDER, story, write_segment

NAME = ("orders", 0)
ACKED_S = 5.0


def change(at_s: float, isr: tuple[int, ...], elr: tuple[int, ...] = ()) -> MetadataChange:
    return MetadataChange(at_s, int(at_s * 10), *NAME, isr[0] if isr else -1, 0, isr, elr)


ALL = change(0.0, (1, 2, 3))

CASES = {
    "written before the journal begins": ([change(6.0, (1, 2, 3)), change(7.0, (1, 2))], [], False),
    "nobody lost a disk": ([ALL], [], False),
    "one of three did": ([ALL], [DiskLoss(6.0, 1)], False),
    "all did": ([ALL], [DiskLoss(6.0, 1), DiskLoss(6.0, 2), DiskLoss(6.0, 3)], True),
    "all did, before it was written": ([ALL], [DiskLoss(4.0, 1), DiskLoss(4.0, 2), DiskLoss(4.0, 3)], False),
    "the whole ISR did, one was outside of it": (
        [ALL, change(3.0, (1, 2))],
        [DiskLoss(6.0, 1), DiskLoss(6.0, 2)],
        True,
    ),
    "the ISR did, an eligible leader replica did not": (
        [ALL, change(3.0, (1,), (2,))],
        [DiskLoss(6.0, 1)],
        False,
    ),
    "who joined later has it": (
        [ALL, change(3.0, (1, 2)), change(6.0, (1, 2, 3))],
        [DiskLoss(7.0, 1), DiskLoss(7.0, 2)],
        False,
    ),
    "one after the other, with a copy between": (
        [ALL, change(6.5, (2, 3)), change(8.0, (2, 3, 1)), change(9.5, (1, 3))],
        [DiskLoss(6.0, 1), DiskLoss(9.0, 2)],
        False,
    ),
    "one after the other, without": (
        [change(0.0, (1, 2)), change(6.5, (2,))],
        [DiskLoss(6.0, 1), DiskLoss(9.0, 2)],
        True,
    ),
    "disks of other partitions": (
        [ALL],
        [DiskLoss(6.0, node, (("others", 0),)) for node in (1, 2, 3)],
        False,
    ),
}


@pytest.mark.parametrize(("wrong", "at_s"), [((), 40.0), ((2,), 100.0), ((1, 2), None)])
def test_the_word_of_a_wrong_clock_is_not_taken(
    tmp_path: Path, wrong: tuple[int, ...], at_s: float | None
) -> None:
    """Node 1 wrote everything at 100 s; node 2 says that it did at 40 s."""
    for node, written_s in ((1, 100), (2, 40)):
        write_segment(tmp_path / str(node) / FOLDER, story(), synced=6, written_ms=1000 * written_s)
    folders = [tmp_path / "1", tmp_path / "2"]
    journal = read_journal(folders, ["orders"], {}, 0.0, wrong_clocks=[folders[node - 1] for node in wrong])
    found = None if journal is None else journal.partitions[0].at_s
    assert found == at_s


@pytest.mark.parametrize(("allowed", "explained"), [(True, True), (False, False)])
def test_an_unclean_election_is_an_excuse_where_the_topic_allows_it(allowed: bool, explained: bool) -> None:
    unclean = replace(change(7.0, (3,)), unclean=True)
    journal = Journal((ALL, change(3.0, (1, 2)), unclean))
    assert is_explained(journal, [], NAME, ACKED_S, unclean_is_allowed=allowed) is explained


@pytest.mark.parametrize("case", CASES)
def test_an_excuse_needs_that_everybody_who_had_it_lost_it(case: str) -> None:
    changes, losses, explained = CASES[case]
    assert is_explained(Journal(tuple(changes)), losses, NAME, ACKED_S) is explained


@pytest.mark.parametrize(
    ("from_s", "until_s", "has"),
    [(-1.0, 2.9, False), (2.5, 3.5, True), (3.1, 9.0, False), (2.0, float("inf"), True)],
)
def test_the_making_of_a_partition_is_no_change(from_s: float, until_s: float, has: bool) -> None:
    journal = Journal((ALL, replace(ALL, partition=1, at_s=0.5), change(3.0, (1, 2))))
    assert has_change(journal, from_s, until_s) is has
