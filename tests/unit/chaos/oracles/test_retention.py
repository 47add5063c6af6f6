"""What retention may delete, by the files that were there: the oracle fires, and not on the story next to it."""

from __future__ import annotations

import pytest

from kraft.chaos.oracles.retention import DataFile, RetentionJudge
from kraft.chaos.oracles.topic_rules import RetentionRule
from partitions.records.builder import build_opaque_batch
from tests.unit.chaos.oracles.model import KEY, Model

NOW_MS = 10_000


def batch(offset: int, timestamp: int) -> bytes:
    return build_opaque_batch(b"v", offset=offset, leader_epoch=0, timestamp=timestamp, is_control=False)


SIZE = len(batch(0, 0))
"""Bytes of each file below: one batch."""
FILES = [DataFile(offset, batch(offset, 1_000 * offset)) for offset in range(6)]
"""Ages at NOW_MS: 10, 9, 8, 7, 6 and 5 seconds."""


def judged(
    rule: RetentionRule | None, before: int, after: int, files: list[DataFile] = FILES, now_ms: int = NOW_MS
) -> list[str]:
    model = Model()
    RetentionJudge(model.verdicts, lambda key: rule, model.metadata.name).expired(
        KEY, 1, before, after, files, now_ms
    )
    return [violation.oracle for violation in model.verdicts.violations]


@pytest.mark.parametrize(
    ("rule", "before", "after", "is_right"),
    [
        (RetentionRule(True, 7_500, -1), 0, 3, True),
        (RetentionRule(True, 8_000, -1), 0, 3, False),
        (RetentionRule(True, 8_000, -1), 0, 2, True),
        (RetentionRule(True, -1, 3 * SIZE), 0, 3, True),
        (RetentionRule(True, -1, 3 * SIZE + 1), 0, 3, False),
        (RetentionRule(True, -1, 0), 0, 5, True),
        (RetentionRule(True, 8_500, 3 * SIZE), 0, 3, True),
        (RetentionRule(True, 8_500, 5 * SIZE), 0, 3, False),
        (RetentionRule(True, -1, -1), 0, 1, False),
        (RetentionRule(True, -1, -1), 1, 2, False),
        (RetentionRule(False, 0, 0), 0, 1, False),
        (None, 0, 3, True),
    ],
)
def test_only_what_is_old_or_too_much(
    rule: RetentionRule | None, before: int, after: int, is_right: bool
) -> None:
    assert judged(rule, before, after) == ([] if is_right else ["retention-limits"])


def test_size_takes_the_oldest_and_age_what_is_left_of_the_old() -> None:
    files = [DataFile(0, batch(0, 9_000)), DataFile(1, batch(1, 100)), DataFile(2, batch(2, 9_000))]
    rule = RetentionRule(True, 5_000, 2 * SIZE)
    assert judged(rule, 0, 2, files) == []
    assert judged(rule, 0, 3, files) == ["retention-limits"]


def test_all_of_a_file_has_to_be_old() -> None:
    files = [DataFile(0, batch(0, 100) + batch(1, 9_000)), DataFile(2, b"")]
    assert judged(RetentionRule(True, 5_000, -1), 0, 2, files) == ["retention-limits"]
    assert judged(RetentionRule(True, 500, -1), 0, 2, files) == []


def test_what_went_before_is_not_judged_again() -> None:
    assert judged(RetentionRule(True, 8_500, -1), 2, 2) == []
    assert judged(RetentionRule(True, 7_500, -1), 2, 3) == []


def test_rotten_batches_have_no_age_and_go_only_where_age_counts() -> None:
    rotten = bytearray(batch(0, 9_999))
    rotten[-1] ^= 1
    files = [DataFile(0, bytes(rotten)), DataFile(1, b"")]
    assert judged(RetentionRule(True, 5_000, -1), 0, 1, files) == []
    assert judged(RetentionRule(True, -1, -1), 0, 1, files) == ["retention-limits"]
