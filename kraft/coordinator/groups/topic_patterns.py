"""Subscriptions by regular expression: RE2's syntax, and a whole topic name must match (KIP-848).

RE2 takes time in proportion to the name and bounded memory, whatever the expression: a member cannot stall the
coordinator with one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import re2

MAX_PATTERN_BYTES: Final = 32_767
"""What the key of its record can carry."""
_OPTIONS: Final[Any] = re2.Options()
_OPTIONS.log_errors = False


class InvalidPattern(ValueError):
    """What is refused; its text says why."""


def check_pattern(pattern: str) -> None:
    """Raises InvalidPattern for what RE2 does not compile."""
    _compiled(pattern)


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """Those of the names that match: none for what RE2 does not compile, which only a foreign record can bring."""
    try:
        compiled = _compiled(pattern)
    except InvalidPattern:
        return frozenset()
    return frozenset(name for name in names if compiled.fullmatch(name) is not None)


def _compiled(pattern: str) -> Any:
    """re2 keeps as many as its own cache takes."""
    if len(pattern.encode()) > MAX_PATTERN_BYTES:
        raise InvalidPattern(f"it is longer than {MAX_PATTERN_BYTES} bytes")
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        reason = error.args[0] if error.args else "it cannot be compiled"
        raise InvalidPattern(
            reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        ) from None
