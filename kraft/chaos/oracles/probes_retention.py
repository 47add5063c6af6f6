"""Probes on retention: each time it moves the start of a log, they look at the files that it gives up."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from kraft.chaos.oracles.node_disks import NodeDisks
from kraft.chaos.oracles.probes import key_of
from kraft.chaos.oracles.retention import RetentionJudge
from kraft.chaos.oracles.wrapping import Method, Probes, Whose, around
from partitions.log.log import PartitionLog
from partitions.log.node_logs.retention_rounds import Retention


class RetentionProbes(Probes):
    """Probes on the rounds of retention, and on their effect on each log."""

    def __init__(self, whose: Whose, judge: RetentionJudge, disks: NodeDisks) -> None:
        self._whose = whose
        self._judge = judge
        self._disks = disks
        self._began_ms: dict[int, int] = {}

    @around(Retention, "step")
    def _step(
        self, original: Method, retention: Retention, *arguments: Any, **options: Any
    ) -> Coroutine[Any, Any, int]:
        """Around a step, which asks the clock once and may reach its last log after the clock was set back."""
        node = self._whose.node()
        if node is not None:
            self._began_ms[node] = self._disks.wall_clock_ms(node)
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
        files = None if node is None else self._disks.data_files_in(node, log.directory)
        if key is not None and node is not None and files is not None:
            now_ms = self._disks.wall_clock_ms(node)
            latest_ms = max(now_ms, self._began_ms.get(node, now_ms))
            self._judge.expired(key, node, before, log.log_start_offset, files, latest_ms)
