"""Why a view is not told."""

from __future__ import annotations


class ViewError(Exception):
    """The text says what to do."""
