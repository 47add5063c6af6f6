"""How a cleaning can end early."""

from __future__ import annotations


class CleaningAborted(Exception):
    """The log was truncated, closed or shortened meanwhile: what was done so far is thrown away."""


class CleaningFailed(Exception):
    """The log cannot be cleaned as it is; it is left alone until the node starts again."""
