"""What the values of a log's configuration keys are written like.

Guarantees: each parser turns the text of a properties file or of an AlterConfigs request into its value,
or raises ValueError with the end of a sentence that says what would do. Used by the table in `config.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

INT_MAX: Final = 2**31 - 1
LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1
COMPACT: Final = "compact"
DELETE: Final = "delete"

ConfigValue = int | float | str | bool
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,100}")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
"""Kafka's tools and clients read the same text: by Python's own rules 1_000 and other scripts' digits are numbers."""


def whole_number(text: str) -> int:
    """The number. Raises ValueError."""
    if _WHOLE_NUMBER.fullmatch(text.strip()) is None:
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def number(text: str) -> float:
    """The number. Raises ValueError."""
    if _NUMBER.fullmatch(text.strip()) is None:
        raise ValueError(f"{text!r} is not a number")
    return float(text)


def integer(minimum: int, maximum: int) -> Callable[[str], ConfigValue]:
    """A whole number between the two, both included."""

    def parse(text: str) -> ConfigValue:
        value = whole_number(text)
        if not minimum <= value <= maximum:
            raise ValueError(f"{value} is not between {minimum} and {maximum}")
        return value

    return parse


def choice(*choices: str) -> Callable[[str], ConfigValue]:
    """One of these words."""

    def parse(text: str) -> ConfigValue:
        value = text.strip()
        if value not in choices:
            raise ValueError(f"{text!r} is not supported; use {' or '.join(choices)}")
        return value

    return parse


def gzip_level(text: str) -> ConfigValue:
    """A level of gzip, or -1 for the library's own."""
    value = integer(-1, 9)(text)
    if value == 0:
        raise ValueError("0 is neither between 1 and 9 nor -1")
    return value


def fraction(text: str) -> ConfigValue:
    """A number from 0 to 1."""
    value = number(text)
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{value} is not between 0 and 1")
    return value


def cleanup_policy(text: str) -> ConfigValue:
    """What becomes of old records, each way once, comma-separated; an empty text: nothing does."""
    if not text.strip():
        return ""
    policies = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for policy in policies:
        if policy not in (COMPACT, DELETE):
            raise ValueError(f"{policy!r} is not supported; use {COMPACT}, {DELETE} or {COMPACT},{DELETE}")
    return ",".join(policies)


def boolean(text: str) -> ConfigValue:
    """true or false."""
    value = text.strip().lower()
    if value not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return value == "true"
