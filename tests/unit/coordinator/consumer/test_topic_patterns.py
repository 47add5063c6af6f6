"""Which regular expressions a member may subscribe by."""

from __future__ import annotations

import pytest

from kraft.coordinator.groups.topic_patterns import InvalidPattern, check_pattern, matching

TOPICS = ("orders", "orders-eu", "payments.v2", "x")


@pytest.mark.parametrize(
    "pattern", ["(.?){1000}x", "(.?){1000}" * 8, r"(.*a.{0,150}){6}x", r"((\pL{0,30}|.){0,30})x"]
)
def test_what_would_stall_the_coordinator_is_refused(pattern: str) -> None:
    """The first takes a tenth of a second for each long name of a topic."""
    with pytest.raises(InvalidPattern, match="repeat less"):
        check_pattern(pattern)
    assert matching(pattern, TOPICS) == frozenset()


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("orders", {"orders"}),
        ("orders.*", {"orders", "orders-eu"}),
        (r"^(orders|payments)[-.](eu|v\d+)$", {"orders-eu", "payments.v2"}),
        (r"\pL+", {"orders", "x"}),
        ("(?i)ORDERS", {"orders"}),
        ("[a-z0-9._-]{1,249}", set(TOPICS)),
        ("|".join(f"topic-{number:020}" for number in range(1_000)) + "|x", {"x"}),
    ],
)
def test_what_people_write_matches_whole_names(pattern: str, matched: set[str]) -> None:
    check_pattern(pattern)
    assert matching(pattern, TOPICS) == matched
