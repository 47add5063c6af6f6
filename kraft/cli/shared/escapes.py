"""Escapes in options that hold bytes: a shell hands `\\t` on as two characters."""

from __future__ import annotations

import re

from kraft.cli.shared.options import require_text

_ESCAPE = re.compile(rb"\\(?:([ntr0\\])|x([0-9a-fA-F]{2}))")
_NAMED = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}


def unescape(text: str, what: str) -> bytes:
    """The bytes that an option means: \\n, \\t, \\r, \\0, \\\\ and \\xHH stand for one; another backslash is itself.
    Raises UserError, wrong usage, for what is no UTF-8; `what` names the option."""
    return _ESCAPE.sub(_meant, require_text(text, what).encode())


def _meant(found: re.Match[bytes]) -> bytes:
    name, digits = found.groups()
    return bytes.fromhex(digits.decode()) if digits else _NAMED[name]
