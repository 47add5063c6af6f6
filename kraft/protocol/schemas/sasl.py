"""SaslHandshake (17) and SaslAuthenticate (36): a connection says who it is (KIP-43, KIP-152, KIP-368).

The tokens inside are those of the mechanism, in the order that it asks for. Handshake version 0 means tokens that no
frame tells apart from requests, so that only 1 is spoken here.
"""

from __future__ import annotations

from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import STRING, Message, array, binary, int16, int64, message, sentence, string


@message
class SaslHandshakeRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.SASL_HANDSHAKE

    mechanism: str = string("0+")


@message
class SaslHandshakeResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.SASL_HANDSHAKE

    error_code: int = int16("0+")
    mechanisms: list[str] = array(STRING, "0+")
    """What the broker offers."""


@message
class SaslAuthenticateRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.SASL_AUTHENTICATE

    auth_bytes: bytes = binary("0+")


@message
class SaslAuthenticateResponse(Message):
    """After `session_lifetime_ms` the broker takes no other request before a new authentication; 0: for ever."""

    API_KEY: ClassVar[ApiKey] = ApiKey.SASL_AUTHENTICATE

    error_code: int = int16("0+")
    error_message: str | None = sentence("0+")
    auth_bytes: bytes = binary("0+")
    session_lifetime_ms: int = int64("1+", ignorable=True)
