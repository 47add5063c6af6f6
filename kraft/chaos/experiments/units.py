"""Quantities with their units, as experiment files write them: "5s", "200ms", "10MB", "50/s", "1%". Pure.

A number without a unit is refused wherever a unit belongs: nobody has to guess what 500 means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

SECONDS: Final[Mapping[str, float]] = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
BYTES: Final[Mapping[str, float]] = {
    "B": 1,
    "kB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
_QUANTITY = re.compile(r"(-?\d+(?:\.\d+)?) ?([A-Za-z/%]*)")


class UnitError(ValueError):
    """A text that is no quantity of the kind asked for; the message says what would be."""


def seconds_of(text: object) -> float:
    """ "200ms" → 0.2. Raises UnitError."""
    return _parsed(text, SECONDS, "a duration like 5s or 200ms")


def bytes_of(text: object) -> int:
    """ "10MB" → 10_000_000. Raises UnitError."""
    return round(_parsed(text, BYTES, "a size like 10MB or 64KiB"))


def rate_of(text: object) -> float:
    """ "50/s" → 50.0 a second. Raises UnitError."""
    return _parsed(text, {"/s": 1.0, "/min": 1 / 60}, "a rate like 50/s")


def byte_rate_of(text: object) -> float:
    """ "100kB/s" → 100_000.0 bytes a second. Raises UnitError."""
    units = {f"{name}/s": factor for name, factor in BYTES.items()}
    return _parsed(text, units, "a bandwidth like 100kB/s")


def share_of(text: object) -> float:
    """ "1%" → 0.01. Raises UnitError."""
    return _parsed(text, {"%": 0.01}, "a share like 1%")


def count_of(text: object) -> float:
    """A plain number. Raises UnitError."""
    return _parsed(text, {"": 1.0}, "a plain number")


def _parsed(text: object, units: Mapping[str, float], wanted: str) -> float:
    matched = _QUANTITY.fullmatch(str(text)) if isinstance(text, (str, int, float)) else None
    if matched is None or isinstance(text, bool) or matched[2] not in units:
        raise UnitError(f"{text!r} is not {wanted}")
    return float(matched[1]) * units[matched[2]]


def shown_seconds(seconds: float) -> str:
    """A duration as a file would write it: 0.2 → "200ms"."""
    if seconds and abs(seconds) < 1:
        return f"{seconds * 1e3:g}ms"
    return f"{seconds:g}s" if abs(seconds) < 120 or seconds % 60 else f"{seconds / 60:g}min"
