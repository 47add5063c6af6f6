"""The partitions that a command names: `--topic T` for all of a topic, `--topic T:P[,…]` for some. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kraft.cli.shared.options import require_text
from kraft.user_error import EXIT_USAGE, UserError

PARTITION_MAX = 2**31 - 1

Scope = Mapping[str, frozenset[int] | None]
"""Partitions by topic; None: all of the topic."""


def parse_scope(texts: list[str]) -> Scope:
    """What several `--topic` mean together. Raises UserError, wrong usage. (No topic's name has a colon.)"""
    scope: dict[str, frozenset[int] | None] = {}
    for text in texts:
        name, colon, numbers = require_text(text, "--topic").partition(":")
        if not name:
            raise _wrong(text)
        before = scope.get(name, frozenset())
        named = frozenset(_number(number, text) for number in numbers.split(",")) if colon else None
        scope[name] = None if before is None or named is None else before | named
    return scope


def is_in(scope: Scope, topic: str, partition: int) -> bool:
    """Whether the scope has the partition."""
    if topic not in scope:
        return False
    numbers = scope[topic]
    return numbers is None or partition in numbers


def _number(text: str, option: str) -> int:
    if (
        text.isascii()
        and text.isdecimal()
        and len(text) <= len(str(PARTITION_MAX))
        and int(text) <= PARTITION_MAX
    ):
        return int(text)
    raise _wrong(option)


def _wrong(text: str) -> UserError:
    return UserError(f"--topic is NAME, or NAME:PARTITION[,…], not {text!r}", EXIT_USAGE)
