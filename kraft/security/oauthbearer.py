"""OAUTHBEARER: who a client is by a signed token that somebody else gave it (RFC 7628, KIP-255, KIP-768).

A token is a JWT signed with a key of the issuer's JWKS. Which algorithms count is a matter of the key, not of the
token: only keys of RSA and of elliptic curves are used, so no public key can pass for a secret, and a token that is
not signed is none. Claims are checked as Kafka's BrokerJwtValidator does. Pure: keys and times are passed in;
`kraft.broker.jwks` fetches the keys. No error shows any part of a token but the id of its key.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey, import_key
from joserfc.jws import JWSRegistry, extract_compact

from kraft.security.oauthbearer_client import TOKEN_MAX_BYTES
from kraft.security.sasl_servers import Step
from kraft.security.scram import SaslError

KEYS_MAX: Final = 256
"""Of one JWKS; those beyond are not used."""
KEY_ID_MAX: Final = 1000
"""Characters."""
RSA_BITS_MIN: Final = 2048
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_HEADER = re.compile(rb"n,(?:a=([^,\x01]*))?,\x01((?:[A-Za-z]+=[\x20-\x7e\t\r\n]*\x01)*)\x01")
_BEARER = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +([-A-Za-z0-9._~+/]+=*)")
_CANCEL: Final = b"\x01"
"""What a client answers to being told why (RFC 7628, 3.2.3)."""
_BAD: Final = (JoseError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""What the library raises for texts of strangers; the last for JSON of a thousand brackets."""


class UnknownKeyError(SaslError):
    """No key is known by this id: it may be a new one."""


class Key(NamedTuple):
    """One that tokens are verified with."""

    key: RSAKey | ECKey
    algorithms: tuple[str, ...]


@dataclass(frozen=True)
class Keys:
    """A JWKS, as far as it is of use."""

    by_id: Mapping[str, Key]
    nameless: Sequence[Key]
    """Keys without an id."""

    def __len__(self) -> int:
        return len(self.by_id) + len(self.nameless)

    def find(self, key_id: str | None, algorithm: str) -> Key:
        """The key of a token's header; a token that names none is verified with the only one that there can be.

        Raises SaslError.
        """
        if key_id is not None:
            found = self.by_id.get(key_id)
            if found is None:
                raise UnknownKeyError(f"the issuer's keys have none with the id {key_id[:80]!a}")
            return found
        fitting = [key for key in (*self.by_id.values(), *self.nameless) if algorithm in key.algorithms]
        if len(fitting) != 1:
            raise SaslError(f"the token names no key, and {len(fitting)} keys would fit")
        return fitting[0]


NO_KEYS: Final = Keys({}, ())


def parse_jwks(text: bytes) -> Keys:
    """A JWK Set (RFC 7517). Keys that are secret, for encryption or of another kind are left out. Raises ValueError."""
    try:
        listed = json.loads(text)["keys"]
    except _BAD as error:
        raise ValueError('it is no JWK Set: JSON with "keys"') from error
    if not isinstance(listed, list):
        raise ValueError('it is no JWK Set: JSON with "keys"')
    by_id: dict[str, Key] = {}
    nameless: list[Key] = []
    for one in listed[:KEYS_MAX]:
        key = _key(one)
        if key is None:
            continue
        key_id = one.get("kid")
        if key_id is None:
            nameless.append(key)
        elif isinstance(key_id, str) and len(key_id) <= KEY_ID_MAX:
            by_id[key_id] = key
    if not by_id and not nameless:
        raise ValueError("it has no RSA key of 2048 bits or more and no EC key for signatures")
    return Keys(by_id, nameless)


def _key(one: Any) -> Key | None:
    if not isinstance(one, dict) or one.get("kty") not in ("RSA", "EC") or one.get("use", "sig") != "sig":
        return None
    public = {name: one[name] for name in ("kty", "n", "e", "crv", "x", "y") if name in one}
    try:
        if "key_ops" in one and "verify" not in one["key_ops"]:
            return None
        if public["kty"] == "RSA" and _bits(public["n"]) < RSA_BITS_MIN:
            return None
        key = import_key(public)
        algorithms = _algorithms(key, public)
    except _BAD:
        return None
    declared = one.get("alg")
    if declared is not None:
        algorithms = tuple(algorithm for algorithm in algorithms if algorithm == declared)
    assert isinstance(key, RSAKey | ECKey)
    return Key(key, algorithms) if algorithms else None


def _algorithms(key: Any, public: Mapping[str, Any]) -> tuple[str, ...]:
    if isinstance(key, RSAKey):
        return _RSA
    curve = _CURVES.get(public.get("crv", ""))
    return () if curve is None else (curve,)


def _bits(number: str) -> int:
    """Of a number as JWK write it."""
    return int.from_bytes(urlsafe_b64decode(f"{number}==")).bit_length()


@dataclass(frozen=True)
class TokenRules:
    """What a token has to say, by Kafka's keys sasl.oauthbearer.…"""

    audiences: tuple[str, ...] = ()
    """One of these has to be among the token's; empty: any."""
    issuer: str | None = None
    scope_claim: str = "scope"
    subject_claim: str = "sub"
    clock_skew_s: int = 30


class Believed(NamedTuple):
    """What a good token says."""

    name: str
    lifetime_ms: int
    """At least 1."""


def judge_token(token: str, keys: Keys, rules: TokenRules, now_s: float) -> Believed:
    """`now_s`: seconds since the Unix epoch. Raises SaslError with the end of a sentence."""
    if len(token) > TOKEN_MAX_BYTES:
        raise SaslError(f"the token has more than {TOKEN_MAX_BYTES} bytes")
    registry = _registry(("RS256",))
    try:
        header: Any = extract_compact(token.encode("ascii"), registry=registry).headers()
    except _BAD as error:
        raise SaslError("the token is no signed JWT") from error
    if not isinstance(header, dict):  # the library takes a list, or a text, that has "alg" in it
        raise SaslError("the token is no signed JWT")
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or not (key_id is None or isinstance(key_id, str)):
        raise SaslError("the token is no signed JWT")
    if algorithm.lower() == "none" or "crit" in header or "b64" in header:
        raise SaslError("the token is not signed in a way that is accepted")
    key = keys.find(key_id, algorithm)
    if algorithm not in key.algorithms:
        raise SaslError("the token is not signed by an algorithm of its key")
    try:
        claims = jwt.decode(token, key.key, key.algorithms, _registry(key.algorithms)).claims
    except _BAD as error:
        raise SaslError("the token's signature is wrong") from error
    return _judge_claims(claims, rules, now_s)


def _registry(algorithms: tuple[str, ...]) -> JWSRegistry:
    """Headers that the library does not know change nothing; those that must not be ignored are refused before."""
    registry = JWSRegistry(algorithms=algorithms, strict_check_header=False)
    registry.max_header_length = registry.max_payload_length = TOKEN_MAX_BYTES
    return registry


def _judge_claims(claims: Mapping[str, Any], rules: TokenRules, now_s: float) -> Believed:
    expires_s, issued_s = _time(claims, "exp"), _time(claims, "iat")
    if expires_s is None or issued_s is None:
        raise SaslError(f"the token has no {'exp' if expires_s is None else 'iat'}")
    not_before_s = _time(claims, "nbf")
    skew_s = rules.clock_skew_s
    if expires_s + skew_s <= now_s:
        raise SaslError("the token has expired")
    if not_before_s is not None and not_before_s - skew_s > now_s:
        raise SaslError("the token is not valid yet")
    if issued_s - skew_s > now_s or issued_s > expires_s:
        raise SaslError("the token was issued in the future, or after it expired")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise SaslError("the token is of another issuer")
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if rules.audiences and not any(one in audiences for one in rules.audiences):
        raise SaslError("the token is for another audience")
    _check_scopes(claims.get(rules.scope_claim))
    name = claims.get(rules.subject_claim)
    if not isinstance(name, str) or not name.strip():
        raise SaslError(f"the token has no {rules.subject_claim}")
    lifetime_ms = int(min((expires_s - now_s) * 1000, 2**62))
    return Believed(name.strip(), max(1, lifetime_ms))


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    """Seconds since the epoch; None if the claim is not there. Raises SaslError."""
    value = claims.get(name)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 2**53:  # nor NaN
        raise SaslError(f"the token's {name} is no time")
    return float(value)


def _check_scopes(scopes: Any) -> None:
    if scopes is None or isinstance(scopes, str):
        return
    if not isinstance(scopes, list) or not all(isinstance(scope, str) and scope.strip() for scope in scopes):
        raise SaslError("the token's scopes are no texts")


class OAuthBearerServer:
    """Takes the token; who is refused is told so once in JSON, and then fails with the reason."""

    def __init__(self, judge: Callable[[str], Believed]) -> None:
        """`judge` raises SaslError for a token that is not to be believed."""
        self._judge = judge
        self._refused_because: str | None = None

    def respond(self, token: bytes) -> Step:
        if self._refused_because is not None:
            raise SaslError(f"Authentication failed: {self._refused_because}")
        authorization, bearer = _read(token)
        try:
            believed = self._judge(bearer)
        except SaslError as error:
            self._refused_because = str(error)
            return Step(json.dumps({"status": "invalid_token"}).encode())
        if authorization not in ("", believed.name):
            raise SaslError(
                "Authentication failed: Client requested an authorization id that is different from the token's"
                " principal name"
            )
        return Step(b"", believed.name, believed.lifetime_ms)


def _read(message: bytes) -> tuple[str, str]:
    """Authorization id and token of a client's first message. Extensions are read over. Raises SaslError."""
    found = None if message == _CANCEL else _HEADER.fullmatch(message)
    pairs = [] if found is None else [pair.partition(b"=") for pair in found[2].split(_CANCEL) if pair]
    tokens = [value for name, _, value in pairs if name.lower() == b"auth"]
    bearer = _BEARER.fullmatch(tokens[0]) if len(tokens) == 1 else None
    if found is None or bearer is None:
        raise SaslError("Authentication failed: Invalid OAUTHBEARER client first message")
    try:
        authorization = (found[1] or b"").decode().replace("=2C", ",").replace("=3D", "=")
    except UnicodeDecodeError as error:
        raise SaslError("Authentication failed: Invalid OAUTHBEARER client first message") from error
    return authorization, bearer[1].decode("ascii")
