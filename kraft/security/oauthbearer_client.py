"""OAUTHBEARER's client: it shows a token that an issuer gave it, and nothing else (RFC 7628, KIP-255, KIP-342).

`token_login.py` says where tokens come from, `mechanisms.py` makes clients. The token is in no repr and in no error.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import ClassVar, Final

from kraft.security.scram import SaslError

OAUTHBEARER: Final = "OAUTHBEARER"
TOKEN_MAX_BYTES: Final = 32 << 10
_END: Final = "\x01"
_GIVEN_UP: Final = b"\x01"
"""What a client answers to being told why, so that the broker ends the exchange (RFC 7628, 3.2.3)."""
_STATUS: Final = re.compile(r"[A-Za-z_]{1,40}")


@dataclass(frozen=True)
class BearerToken:
    """One token, as long as it counts."""

    token: str = field(repr=False)
    expires_at_s: float
    """Since the Unix epoch."""
    username: str
    """Whom it names, for messages; the broker judges itself."""
    extensions: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Names and values that go to the broker beside it."""
    mechanism: ClassVar[str] = OAUTHBEARER

    @property
    def secret(self) -> str:
        return self.token


class OAuthBearerClient:
    """One authentication."""

    def __init__(self, shown: BearerToken) -> None:
        self._shown = shown
        self._refused_because: str | None = None

    def first(self) -> bytes:
        pairs = [("auth", f"Bearer {self._shown.token}"), *self._shown.extensions]
        return f"n,,{_END}{''.join(f'{name}={value}{_END}' for name, value in pairs)}{_END}".encode()

    def respond(self, message: bytes) -> bytes | None:
        """Nothing is to be said to a broker that is content. What refuses the token is answered once: the reason
        comes with the error after that. Raises SaslError."""
        if self._refused_because is not None:
            raise SaslError(f"the broker refuses the token: {self._refused_because}")
        if not message:
            return None
        self._refused_because = _status(message)
        return _GIVEN_UP


def _status(message: bytes) -> str:
    """The word that a refusal has, if it has one: nothing else of it is repeated."""
    try:
        status = json.loads(message[:TOKEN_MAX_BYTES])["status"]
    except (ValueError, TypeError, KeyError, RecursionError):
        status = None
    return status if isinstance(status, str) and _STATUS.fullmatch(status) else "it does not say why"
