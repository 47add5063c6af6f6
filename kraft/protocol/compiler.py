"""The compiler of a declared message: its codec in one version. `kraft.protocol.messages` keeps the result."""

from __future__ import annotations

from kraft.protocol.decoder_source import build_decoder
from kraft.protocol.encoder_source import build_encoder
from kraft.protocol.primitives import Codec
from kraft.protocol.schema import Message


def compile_codec(of: type[Message], version: int, flexible: bool, *, is_request: bool = False) -> Codec:
    """The encoder and the decoder of the message in this version.

    `flexible` says whether the version has compact lengths and tagged fields (KIP-482). The caller
    has checked that the version exists. Requests may have fewer elements than other messages.
    """
    return Codec(
        build_encoder(of, version, flexible), build_decoder(of, version, flexible, is_request=is_request)
    )
