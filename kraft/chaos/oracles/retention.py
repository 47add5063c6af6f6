"""The judge of retention: it deletes only records that its topic's configs let go, by age or by size.

Judges retention-limits: a log gives up a segment only if its topic's cleanup.policy deletes, and only if the whole
segment is older than retention.ms by the node's wall clock, or the segments behind it hold retention.bytes already. It
looks at the files on the disk at that moment, when all are still there: they go later. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kraft.chaos.history import TopicKey
from kraft.chaos.oracles.scan import newest_timestamp
from kraft.chaos.oracles.topic_rules import RetentionRule
from kraft.chaos.verdict import Verdicts


class DataFile(NamedTuple):
    """One segment's data file."""

    base: int
    """The offset in its name."""
    data: bytes


class RetentionJudge:
    """Judges deletions. `rule_of` gives a topic's rule, None if it is gone; `name` names a partition for people."""

    def __init__(
        self,
        verdicts: Verdicts,
        rule_of: Callable[[TopicKey], RetentionRule | None],
        name: Callable[[TopicKey], str],
    ) -> None:
        self._verdicts = verdicts
        self._rule_of = rule_of
        self._name = name

    def expired(
        self, key: TopicKey, node: int, before: int, after: int, files: Sequence[DataFile], now_ms: int
    ) -> None:
        """Judges retention that moved a log's start from `before` to `after`; `files`: all its data files, in order.

        `now_ms` is the latest time of the node's wall clock since this round of retention began.
        """
        rule = self._rule_of(key)
        wrong = "" if rule is None else too_early(files, before, after, rule, now_ms)
        if wrong:
            self._verdicts.violated(
                "retention-limits",
                f"{self._name(key)}: retention at node {node} deleted offsets {before} to {after - 1}: {wrong}",
            )


def too_early(files: Sequence[DataFile], before: int, after: int, rule: RetentionRule, now_ms: int) -> str:
    """Why some file with offsets from `before` to below `after` should have stayed; "" if none should have."""
    if not rule.deletes:
        return "its cleanup.policy does not delete"
    kept_bytes = sum(len(file.data) for file in files if file.base >= after)
    gone = [
        (file, follows.base)
        for file, follows in zip(files, (*files[1:], DataFile(after, b"")), strict=True)
        if file.base < after and follows.base > before
    ]
    for file, end in reversed(gone):
        is_surplus = 0 <= rule.retention_bytes <= kept_bytes
        newest_ms = newest_timestamp(file.data)
        is_old = rule.retention_ms >= 0 and (newest_ms is None or now_ms - newest_ms > rule.retention_ms)
        if not is_surplus and not is_old:
            return (
                f"offsets {file.base} to {end - 1} are not older than {rule.retention_ms} ms (the newest is"
                f" of {newest_ms}, the clock shows {now_ms}), and {kept_bytes} bytes behind them are not"
                f" {rule.retention_bytes}"
            )
        kept_bytes += len(file.data)
    return ""
