"""An issuer of tokens for OAUTHBEARER, with RSA and EC keys, and a JWKS file of its public ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "kraft"


class Issuer:
    """Signs what it is asked to."""

    def __init__(self) -> None:
        self.rsa = RSAKey.generate_key(2048, {"kid": "rsa-1"})
        self.ec = ECKey.generate_key("P-256", {"kid": "ec-1"})

    def jwks(self, *more: dict[str, Any]) -> bytes:
        keys = [self.rsa.as_dict(private=False), self.ec.as_dict(private=False), *more]
        return json.dumps({"keys": keys}).encode()

    def write_jwks(self, path: Path) -> str:
        """Returns its URL."""
        path.write_bytes(self.jwks())
        return path.as_uri()

    def claims(self, now_s: float, subject: str = "alice", lifetime_s: float = 3600) -> dict[str, Any]:
        """Those of a good token."""
        return {
            "sub": subject,
            "iss": ISSUER,
            "aud": AUDIENCE,
            "iat": int(now_s),
            "exp": int(now_s + lifetime_s),
            "scope": "all",
        }

    def sign(self, claims: dict[str, Any], algorithm: str = "RS256", **header: Any) -> str:
        key = self.ec if algorithm.startswith("ES") else self.rsa
        named = {"alg": algorithm, "kid": key.kid, **header}
        return jwt.encode(
            {name: value for name, value in named.items() if value is not None}, claims, key, [algorithm]
        )

    def token(self, now_s: float, subject: str = "alice", lifetime_s: float = 3600) -> str:
        return self.sign(self.claims(now_s, subject, lifetime_s))
