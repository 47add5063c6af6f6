"""Who may call the controller listener: HMAC over sessions, so that nothing can be forged or replayed.

A caller asks once for a challenge (`GET /session`), and from then on signs each request with the
quorum's shared secret over the challenge, an id of its own, a number that it never uses twice, the
method and the SHA-256 of the body. All of that is in the headers: a stranger's body is not even read.
An answer is signed over the request's signature and its own body, so it answers this request and no
other. What was recorded from the wire is worthless: numbers are taken once, and a challenge is known
only to the process that issued it. A challenge costs the listener no memory until somebody who knows
the secret has used it. Packets are neither hidden nor protected on their way; TLS does that.

Pure: time (seconds, monotonic) and randomness are passed in. Used by `quorum.rpc.server`, `client` and,
for the links between voters, `raft_links`.
"""

from __future__ import annotations

import hashlib
import hmac
import random
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

SESSION_HEADER = "X-Kraft-Session"
BODY_HEADER = "X-Kraft-Body-SHA256"
SIGNATURE_HEADER = "X-Kraft-Signature"
UNKNOWN_SESSION_STATUS = 412
"""The HTTP status that asks for a new session; 401 says that the secret is wrong."""

NONCE_BYTES = 16
MAC_BYTES = 16
TIME_BYTES = 8
CHALLENGE_BYTES = TIME_BYTES + NONCE_BYTES + MAC_BYTES
CHALLENGE_FRESH_S = 30.0
"""A challenge opens a session within this time, or never."""
SESSIONS_MAX = 4096
"""Of callers that know the secret; the one that was silent longest makes room."""
WINDOW = 1024
"""Requests of one caller may overtake each other by so many; more are under way nowhere."""
_HEADER_MAX_CHARACTERS = 256
_COUNTER_MAX = 2**63


class AuthenticationError(Exception):
    """The request is not from somebody who knows the secret, or it is not new; the text says which."""


class UnknownSessionError(AuthenticationError):
    """It is from somebody who knows the secret, in a session that is not known here (any more)."""


def body_hash(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _mac(secret: bytes, *parts: str) -> str:
    mac = _keyed(secret).copy()
    # What is no UTF-8 in a stranger's header is text with surrogates here.
    mac.update("\n".join(parts).encode("utf-8", "surrogateescape"))
    return mac.hexdigest()


@lru_cache(maxsize=16)
def _keyed(secret: bytes) -> hmac.HMAC:
    """To be copied: making one looks the digest up in OpenSSL, which takes longer than all the rest."""
    return hmac.new(secret, digestmod="sha256")


def response_signature(secret: bytes, request_signature: str, body: bytes) -> str:
    """Of the answer to one request."""
    return _mac(secret, "response", request_signature, body_hash(body))


def is_response_to(secret: bytes, request_signature: str, body: bytes, signature: str | None) -> bool:
    """Whether an answer was made for this very request, by somebody who knows the secret."""
    return signature is not None and hmac.compare_digest(
        response_signature(secret, request_signature, body).encode(),
        signature.encode("utf-8", "surrogateescape"),
    )


class CallerSession:
    """The caller's side of one session with one listener."""

    def __init__(self, secret: bytes, challenge: str, rng: random.Random) -> None:
        self._secret = secret
        self._prefix = f"{challenge}.{rng.randbytes(NONCE_BYTES).hex()}"
        self._counter = 0

    def sign(self, method: str, body: bytes) -> dict[str, str]:
        """The headers of one request; each call's are different."""
        self._counter += 1
        session, digest = f"{self._prefix}.{self._counter}", body_hash(body)
        return {
            SESSION_HEADER: session,
            BODY_HEADER: digest,
            SIGNATURE_HEADER: _mac(self._secret, "request", method, session, digest),
        }


@dataclass(slots=True)
class _Window:
    """Which numbers of a caller were taken: the highest, and a bit for each of those just below."""

    highest: int = 0
    taken: int = 0

    def take(self, number: int) -> bool:
        """Whether the number is new; it is not any more afterwards."""
        if number > self.highest:
            self.taken = ((self.taken << min(number - self.highest, WINDOW)) | 1) & ((1 << WINDOW) - 1)
            self.highest = number
            return True
        behind = self.highest - number
        if behind >= WINDOW or self.taken >> behind & 1:
            return False
        self.taken |= 1 << behind
        return True


class RequestGuard:
    """The listener's side."""

    def __init__(self, secret: bytes, rng: random.Random) -> None:
        self._secret = secret
        self._rng = rng
        self._key = rng.randbytes(32)
        self._sessions: OrderedDict[str, _Window] = OrderedDict()
        self._evicted_ms = -1
        """Challenges up to this instant open nothing any more: one of their sessions was forgotten."""

    def challenge(self, now_s: float) -> str:
        """A new challenge, in hex; nothing is remembered of it."""
        head = int(now_s * 1000).to_bytes(TIME_BYTES, "big") + self._rng.randbytes(NONCE_BYTES)
        return (head + self._seal(head)).hex()

    def admit(self, method: str, headers: Mapping[str, str], now_s: float) -> str:
        """The signature of a request that may be served, once. Raises AuthenticationError."""
        session, digest, signature = (
            headers.get(name, "")[: _HEADER_MAX_CHARACTERS + 1]
            for name in (SESSION_HEADER, BODY_HEADER, SIGNATURE_HEADER)
        )
        if len(session) > _HEADER_MAX_CHARACTERS or not signature:
            raise AuthenticationError("the signature is missing; check the shared secret")
        expected = _mac(self._secret, "request", method, session, digest)
        if not hmac.compare_digest(expected.encode(), signature.encode("utf-8", "surrogateescape")):
            raise AuthenticationError("the signature is wrong; check the shared secret")
        caller, _, number = session.rpartition(".")
        if not number.isascii() or not number.isdecimal() or not 0 < int(number) < _COUNTER_MAX:
            raise AuthenticationError("the session has no number")
        if not self._window(caller, now_s).take(int(number)):
            raise AuthenticationError("the request was served before")
        return signature

    def _window(self, caller: str, now_s: float) -> _Window:
        window = self._sessions.get(caller)
        if window is not None:
            self._sessions.move_to_end(caller)
            return window
        if not self._is_fresh(caller.partition(".")[0], now_s):
            raise UnknownSessionError("the session is not known here (any more); ask for a new challenge")
        window = self._sessions[caller] = _Window()
        if len(self._sessions) > SESSIONS_MAX:
            evicted, _ = self._sessions.popitem(last=False)
            self._evicted_ms = max(self._evicted_ms, _issued_ms(bytes.fromhex(evicted.partition(".")[0])))
        return window

    def _is_fresh(self, challenge: str, now_s: float) -> bool:
        try:
            data = bytes.fromhex(challenge)
        except ValueError:
            return False
        head, seal = data[: TIME_BYTES + NONCE_BYTES], data[TIME_BYTES + NONCE_BYTES :]
        if len(data) != CHALLENGE_BYTES or not hmac.compare_digest(self._seal(head), seal):
            return False
        issued_ms = _issued_ms(head)
        return issued_ms > self._evicted_ms and now_s - issued_ms / 1000 < CHALLENGE_FRESH_S

    def _seal(self, head: bytes) -> bytes:
        return hmac.new(self._key, head, "sha256").digest()[:MAC_BYTES]


def _issued_ms(challenge: bytes) -> int:
    return int.from_bytes(challenge[:TIME_BYTES], "big")
