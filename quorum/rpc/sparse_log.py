"""Warnings that strangers or a lasting mistake can cause: one line for each kind now and then, which counts the rest.

Otherwise anybody who can reach a port could fill a disk with lines. The controller listener uses it, the Raft links
for mistakes that last, and every HTTP listener of a node for bytes that are no HTTP request.
"""

from __future__ import annotations

import asyncio

import structlog

log = structlog.get_logger(__name__)

SECONDS_BETWEEN_LINES = 10.0


class SparseLog:
    """The lines of one kind of one listener."""

    def __init__(self, event: str) -> None:
        self._event = event
        self._next_line_s = float("-inf")
        self._unsaid = 0

    def warning(self, **fields: object) -> None:
        """Says it, unless it was said a moment ago. Called on the event loop."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._next_line_s:
            self._unsaid += 1
            return
        self._next_line_s = now_s + SECONDS_BETWEEN_LINES
        log.warning(self._event, **fields, since_the_last_line=self._unsaid)
        self._unsaid = 0
