"""The decoders that strangers reach, each as a function of bytes: whatever comes, they raise their own errors alone.

`guided.py` drives them by coverage. A function raises whatever gets through, and AssertionError if somebody is let in.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable
from random import Random
from typing import Final

from kraft.http.login import name_and_password
from kraft.network.framing import FrameBuffer, FrameError
from kraft.protocol import ProtocolError, decode_request, decode_request_header
from kraft.security.authentication import Authentication, Offer
from kraft.security.oauthbearer import (
    OAuthBearerServer,
    TokenRules,
    judge_token,
    parse_jwks,
)
from kraft.security.password_verdicts import Verdicts
from kraft.security.sasl_servers import PlainServer, ScramUsers, ScramUserServer
from kraft.security.scram import HASHES, SaslError, salted_password, scram_keys
from quorum.metadata.records import UserScramCredential
from quorum.rpc.request_door import RequestLine
from tests.fuzz import inputs
from tests.support.tokens import AUDIENCE, ISSUER, Issuer

Decoder = Callable[[bytes], None]
LINE = RequestLine(b"GET /", b"HEAD /", b"POST /rpc/")
"""All that the controller's and the pages' listener take."""
NOW_S: Final = 1_700_000_000.0
NONCE: Final = "nonce"
PASSWORD: Final = "a password that no stranger guesses"
_ISSUER = Issuer()
KEYS = parse_jwks(_ISSUER.jwks())
RULES = TokenRules((AUDIENCE,), ISSUER)
GOOD_TOKEN = _ISSUER.token(NOW_S).encode()


def _users() -> ScramUsers:
    credentials = {}
    for code, mechanism in enumerate(HASHES, 1):
        keys = scram_keys(mechanism, salted_password(mechanism, PASSWORD, b"salt", 4096))
        credentials["alice", code] = UserScramCredential(
            "alice", code, b"salt", keys.stored, keys.server, 4096
        )
    return ScramUsers(lambda: credentials, b"secret")


USERS = _users()
OFFERS = {
    "PLAIN": Offer(lambda: PlainServer({"alice": PASSWORD}), 0),
    "OAUTHBEARER": Offer(
        lambda: OAuthBearerServer(lambda token: judge_token(token, KEYS, RULES, NOW_S)), 60_000
    ),
    "SCRAM-SHA-256": Offer(lambda: ScramUserServer("SCRAM-SHA-256", USERS, NONCE), 0),
    "SCRAM-SHA-512": Offer(lambda: ScramUserServer("SCRAM-SHA-512", USERS, NONCE), 0),
}
MECHANISMS = (*OFFERS, "GSSAPI")
VERDICTS = Verdicts(USERS, bytes(32))


def frames(data: bytes) -> None:
    """A stream of Kafka's frames, with requests of any kind and version."""
    buffer = FrameBuffer(max_frame_bytes=1 << 19, min_frame_bytes=8)
    space = buffer.writable(len(data))
    size = min(len(space), len(data))
    space[:size] = data[:size]
    buffer.advance(size)
    with contextlib.suppress(FrameError):
        for frame in buffer.take(8):
            with contextlib.suppress(ProtocolError):
                header, position = decode_request_header(frame)
                decode_request(header.api_key, header.api_version, frame[position:])


def sasl(data: bytes) -> None:
    """One connection's authentication: the first byte chooses the mechanism, tokens end with 0xff."""
    authentication = Authentication(OFFERS)
    authentication.handshake(MECHANISMS[data[0] % len(MECHANISMS)] if data else "", NOW_S)
    for token in data[1:].split(b"\xff"):
        if authentication.authenticate(token, NOW_S).is_final:
            break
    assert authentication.principal is None, "somebody was let in"


def jwt(data: bytes) -> None:
    """A token: as it is, and made of a header and claims in JSON with 0xff between them."""
    header, _, claims = data.partition(b"\xff")
    encoded = (base64.urlsafe_b64encode(part).rstrip(b"=") for part in (header, claims, b"no signature"))
    for token in (data.decode("latin-1"), b".".join(encoded).decode()):
        with contextlib.suppress(SaslError):
            raise AssertionError(f"somebody was let in: {judge_token(token, KEYS, RULES, NOW_S)}")


def jwks(data: bytes) -> None:
    """The keys of an issuer."""
    with contextlib.suppress(ValueError):
        parse_jwks(data)


def http(data: bytes) -> None:
    """The head of a request, and its Authorization."""
    LINE.fits(data)
    for authorization in (data.decode("latin-1"), f"Basic {base64.b64encode(data).decode()}"):
        pair = name_and_password(authorization)
        if pair is not None:
            assert not VERDICTS.knows(VERDICTS.ask(*pair)), "somebody was let in"


DECODERS: Final[dict[str, Decoder]] = {"frames": frames, "sasl": sasl, "jwt": jwt, "jwks": jwks, "http": http}


def seeds(name: str) -> list[bytes]:
    """Inputs that come far, for a decoder of this name to begin with."""
    header = json.dumps({"alg": "RS256", "kid": "rsa-1"}).encode()
    bad_token = GOOD_TOKEN[:-4] + b"AAAA"
    return {
        "frames": [inputs.frames(Random(number)) for number in range(50)],
        "sasl": [
            bytes((number,)) + b"\xff".join(inputs.TOKENS[mechanism])
            for number, mechanism in enumerate(MECHANISMS)
        ],
        "jwt": [bad_token, header + b"\xff" + json.dumps(_ISSUER.claims(NOW_S)).encode()],
        "jwks": [_ISSUER.jwks()],
        "http": [*inputs.HEADS, b"Basic YWxpY2U6d3Jvbmc=", b"alice:wrong"],
    }[name]
