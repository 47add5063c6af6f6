"""Probes on retention: each time it moves the start of a log, they look at the files that it gives up."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from kraft.chaos.oracles.probes import key_of
from kraft.chaos.oracles.retention import DataFile, RetentionJudge
from kraft.chaos.oracles.wrapping import Method, Probes, Whose, around
from partitions.log.log import PartitionLog
from partitions.log.node_logs.retention_rounds import Retention

DataFilesIn = Callable[[int, str], Sequence[DataFile] | None]
"""The data files in a folder of a node's disk, in order; None while a cleaned segment takes the place of others."""


class RetentionProbes(Probes):
    """Probes on the rounds of retention, and on their effect on each log."""

    def __init__(
        self, whose: Whose, judge: RetentionJudge, files_in: DataFilesIn, now_ms: Callable[[int], int]
    ) -> None:
        """`now_ms`: a node's wall clock."""
        self._whose = whose
        self._judge = judge
        self._files_in = files_in
        self._now_ms = now_ms
        self._began_ms: dict[int, int] = {}

    @around(Retention, "step")
    def _step(
        self, original: Method, retention: Retention, *arguments: Any, **options: Any
    ) -> Coroutine[Any, Any, int]:
        """Around a step, which asks the clock once and may reach its last log after the clock was set back."""
        node = self._whose.node()
        if node is not None:
            self._began_ms[node] = self._now_ms(node)
        steps: Coroutine[Any, Any, int] = original(retention, *arguments, **options)
        return steps

    @around(PartitionLog, "expire_segments")
    def _expire(self, original: Method, log: PartitionLog, now_ms: int, high_watermark: int) -> None:
        before = log.log_start_offset
        try:
            original(log, now_ms, high_watermark)
        finally:
            if log.log_start_offset > before:
                self._expired(log, before)

    def _expired(self, log: PartitionLog, before: int) -> None:
        key, node = key_of(log), self._whose.node()
        files = None if node is None else self._files_in(node, log.directory)
        if key is not None and node is not None and files is not None:
            now_ms = self._now_ms(node)
            latest_ms = max(now_ms, self._began_ms.get(node, now_ms))
            self._judge.expired(key, node, before, log.log_start_offset, files, latest_ms)
