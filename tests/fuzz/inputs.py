"""Bytes of strangers, drawn from a seed: frames, SASL, HTTP heads, TLS records; well formed, damaged, and noise."""

from __future__ import annotations

import base64
from random import Random
from typing import Any

from kraft.protocol.api import APIS, ApiKey
from kraft.protocol.headers import RequestHeader, encode_request_header
from kraft.protocol.messages import encode_request_frame
from kraft.protocol.schemas.api_versions import ApiVersionsRequest
from kraft.protocol.schemas.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kraft.protocol.schemas.scram_credentials import DescribeUserScramCredentialsRequest

HEADS = (
    b"GET /session HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /rpc/fetch HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody",
    b"GET /raft HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"HEAD /metrics HTTP/1.0\r\n\r\n",
    b"GET /health/../metrics?x=%00 HTTP/1.1\r\nHost: [::1]\r\nOrigin: http://x\r\n\r\n",
    b"GET /api/topics?limit=1&q=a HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: basic YWxpY2U6d3Jvbmc=\r\n\r\n",
    b"POST /rpc/m HTTP/1.1\r\nHost: x\r\nX-Kraft-Session: a.b.1\r\nX-Kraft-Signature: 00\r\n\r\n",
    b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic eDp5\r\n\r\n",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n",
)
TLS_TYPES = (20, 21, 22, 23, 24, 0, 255)
HELLO = bytes.fromhex(
    "16030100450100004103030000000000000000000000000000000000000000000000000000000000000000000004130113020100"
    "0014002b0003020304000d0004000208040000000000"
)
"""The beginning of a handshake."""
_JWT_PARTS = (b'{"alg":"RS256","kid":"rsa-1"}', b'{"sub":"alice","iat":1,"exp":4000000000}', b"no signature")
JWT = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in _JWT_PARTS)
_SCRAM = (b"n,,n=alice,r=mine", b"c=biws,r=minenonce,p=" + base64.b64encode(bytes(32)))
TOKENS = {
    "PLAIN": (b"\0alice\0wrong",),
    "SCRAM-SHA-256": _SCRAM,
    "SCRAM-SHA-512": _SCRAM,
    "OAUTHBEARER": (b"n,,\x01auth=Bearer " + JWT + b"\x01\x01", b"\x01"),
    "GSSAPI": (b"",),
}
"""By mechanism, what clients send in turn; nobody is let in for these."""
_SCRAPS = [
    b"n,,n=alice,r=x", b"c=biws,r=x,p=", b"\0bob\0hidden"[:-1], b"\0", b"", b"n,,", b"p=", b"v=", b"=2C", b",",
    b"r=xnonce", b"\xff", b"x" * 300,
]  # fmt: skip
_VERSIONS = {
    SaslHandshakeRequest: 1,
    SaslAuthenticateRequest: 2,
    ApiVersionsRequest: 3,
    DescribeUserScramCredentialsRequest: 0,
}
DAMAGES_MAX = 4
INT32 = 2**31


def damaged(rng: Random, data: bytes) -> bytes:
    """Some bytes changed, cut away, doubled or put in."""
    content = bytearray(data)
    for _ in range(rng.randrange(DAMAGES_MAX)):
        at = rng.randrange(len(content) + 1)
        match rng.randrange(4):
            case 0 if at < len(content):
                content[at] ^= 1 << rng.randrange(8)
            case 1:
                del content[at:]
            case 2:
                content[at:at] = content[: rng.randrange(200)]
            case _:
                content[at:at] = rng.randbytes(rng.randrange(20))
    return bytes(content)


def any_request(rng: Random) -> bytes:
    """A frame's content: well formed, damaged, or noise."""
    choice = rng.random()
    if choice < 0.15:
        return rng.randbytes(rng.randrange(8, 200))
    token = b"".join(rng.choices(_SCRAPS, k=rng.randrange(4)))
    message: Any = rng.choice(
        (
            SaslHandshakeRequest(rng.choice(("SCRAM-SHA-256", "PLAIN", "GSSAPI", ""))),
            SaslAuthenticateRequest(token),
            SaslAuthenticateRequest(token),
            SaslAuthenticateRequest(rng.randbytes(rng.randrange(40))),
            ApiVersionsRequest("fuzz", "1"),
            DescribeUserScramCredentialsRequest(),
        )
    )
    version = rng.choice(list(APIS[message.API_KEY].versions)) if choice < 0.8 else _VERSIONS[type(message)]
    try:
        frame = bytearray(encode_request_frame(message, version, correlation_id=1, client_id="fuzz"))[4:]
    except Exception:  # noqa: BLE001 - not every message fits every version
        return rng.randbytes(12)
    for _ in range(rng.randrange(3) if choice < 0.5 else 0):
        frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
    return bytes(frame)


def frames(rng: Random) -> bytes:
    """What a Kafka client might send before it has said who it is. Some lengths lie."""
    parts = []
    for _ in range(rng.randrange(1, 5)):
        content = any_request(rng) if rng.random() < 0.8 else _any_api(rng)
        length = len(content) if rng.random() < 0.9 else rng.randrange(-INT32, INT32)
        parts += (length.to_bytes(4, "big", signed=True), content)
    return b"".join(parts)


def _any_api(rng: Random) -> bytes:
    """The right head of any request, and something behind it."""
    key = rng.choice(list(APIS))
    name = rng.choice((None, "", "fuzz", "\u00fc" * rng.randrange(300)))
    head = encode_request_header(
        RequestHeader(key, rng.choice(list(APIS[key].versions)), rng.randrange(INT32), name)
    )
    return head + rng.randbytes(rng.randrange(60))


def sasl(rng: Random) -> bytes:
    """An authentication that goes on as one should for a while, by any mechanism."""
    mechanism = rng.choice(list(TOKENS))
    parts = [_request(rng, SaslHandshakeRequest(mechanism))]
    for token in TOKENS[mechanism]:
        parts.append(_request(rng, SaslAuthenticateRequest(damaged(rng, token))))
    if rng.random() < 0.2:
        rng.shuffle(parts)
    return b"".join(parts)


def _request(rng: Random, message: SaslHandshakeRequest | SaslAuthenticateRequest) -> bytes:
    """A whole frame. Version 0 of the handshake is none of a client that sends tokens in frames."""
    least = 1 if message.API_KEY == ApiKey.SASL_HANDSHAKE else 0
    versions = [version for version in APIS[message.API_KEY].versions if version >= least]
    return encode_request_frame(message, rng.choice(versions), correlation_id=1, client_id="fuzz")


def strangers(rng: Random) -> bytes:
    """What a SASL listener may be sent."""
    return sasl(rng) if rng.random() < 0.5 else frames(rng)


def http(rng: Random) -> bytes:
    """One or two requests."""
    if rng.random() < 0.1:
        return rng.randbytes(rng.randrange(400))
    return b"".join(damaged(rng, rng.choice(HEADS)) for _ in range(rng.randrange(1, 3)))


def tls(rng: Random) -> bytes:
    """Records of any type and length, handshakes that end early, and what does not speak TLS at all."""
    choice = rng.random()
    if choice < 0.4:
        return damaged(rng, HELLO)
    if choice < 0.7:
        body = rng.randbytes(rng.randrange(300))
        size = len(body) if rng.random() < 0.7 else rng.randrange(2**16)
        return bytes((rng.choice(TLS_TYPES), 3, rng.randrange(5))) + size.to_bytes(2, "big") + body
    return frames(rng) if choice < 0.85 else http(rng)
