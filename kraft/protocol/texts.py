"""Texts of clients in answers and in logs: cut to a length, and without characters that forge a line."""

from __future__ import annotations

import base64
from typing import Final

MESSAGE_CHARACTERS: Final = 1000
"""The longest error message that is sent, and the longest reason that is logged."""
QUOTED_CHARACTERS: Final = 250
"""How much of a name or value a sentence quotes: any name of a topic as a whole."""
UUID_BYTES: Final = 16


def shortened(text: str, characters: int = QUOTED_CHARACTERS) -> str:
    """The text, or its start and "…" if it has more characters than that (at least 1)."""
    return text if len(text) <= characters else text[: characters - 1] + "…"


def printable(text: str) -> str:
    """The text as one line for a log: cut, and quoted with escapes if a character of it is not printable."""
    text = shortened(text, MESSAGE_CHARACTERS)
    return text if text.isprintable() else ascii(text)


def uuid_text(data: bytes) -> str:
    """16 bytes as Kafka writes ids, 22 characters of base64; bytes of another length in hexadecimal."""
    if len(data) != UUID_BYTES:
        return data.hex()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
