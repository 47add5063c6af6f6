"""What --json prints and tables show: documents, and ids as people see them."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

Document = dict[str, Any]
"""An object of JSON."""

UUID_BYTES = 16


def uuid_text(data: bytes) -> str:
    """16 bytes as Kafka writes ids, 22 characters of base64; bytes of another length in hexadecimal."""
    if len(data) != UUID_BYTES:
        return data.hex()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def ids_text(brokers: Iterable[int]) -> str:
    """Ids of brokers, separated by commas."""
    return ",".join(map(str, brokers))
