"""How a cleaning can end early."""

from __future__ import annotations


class CleaningAborted(Exception):
    """The log was truncated, closed or shortened meanwhile: what was done so far is thrown away."""


class CleaningFailed(Exception):
    """The log cannot be cleaned as it is, and nothing is wrong with it for those who read it: it is served on, and left
    alone by the cleaner until the node starts again."""
