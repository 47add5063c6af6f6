"""Subscriptions by regular expression: RE2's syntax, and a whole topic name must match (KIP-848).

RE2 takes time in proportion to the name and to the compiled expression, which repetitions multiply: `(.?){1000}` has
10 bytes and would take 100 ms for a long name. A member could stall the coordinator with one, so that what compiles to
more than `MAX_COMPILED_BYTES` is refused. Where nothing is repeated or optional no name can be at many places of the
expression at once, and a list of topics may be as long as RE2 takes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import re2

MAX_PATTERN_BYTES: Final = 32_767
"""What the key of its record can carry."""
MAX_COMPILED_BYTES: Final = 128 * 1024
"""By RE2's own estimate: some 1,400 steps, with which the worst expression takes 2 ms for the longest name."""
_TOO_LARGE: Final = "pattern too large"
"""How RE2's reason begins."""
_REPEATS: Final = frozenset("?*+{")


def _options(max_bytes: int | None = None) -> Any:
    options = re2.Options()
    options.log_errors = False
    if max_bytes is not None:
        options.max_mem = max_bytes
    return options


_OPTIONS: Final = _options(MAX_COMPILED_BYTES)
_LIST_OPTIONS: Final = _options()


class InvalidPattern(ValueError):
    """What is refused; its text says why."""


def check_pattern(pattern: str) -> None:
    """Raises InvalidPattern for what RE2 does not compile, or not within bounds."""
    _compiled(pattern)


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """Those of the names that match: none for what RE2 does not compile, which only a foreign record can bring."""
    try:
        compiled = _compiled(pattern)
    except InvalidPattern:
        return frozenset()
    return frozenset(name for name in names if compiled.fullmatch(name) is not None)


def _compiled(pattern: str) -> Any:
    """re2 keeps as many as its own cache takes. Raises InvalidPattern."""
    if len(pattern.encode()) > MAX_PATTERN_BYTES:
        raise InvalidPattern(f"it is longer than {MAX_PATTERN_BYTES} bytes")
    try:
        return re2.compile(pattern, _LIST_OPTIONS if _REPEATS.isdisjoint(pattern) else _OPTIONS)
    except re2.error as error:
        reason = error.args[0] if error.args else "it cannot be compiled"
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        if text.startswith(_TOO_LARGE):
            text = "it is too large when compiled: have it repeat less, or list the topics by name"
        raise InvalidPattern(text) from None
