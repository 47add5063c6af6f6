"""Coverage-guided: Atheris (libFuzzer) on the decoders that strangers reach. Atheris is no dependency of the project:

pip install atheris && python -m tests.fuzz.guided -max_total_time=600
"""

from __future__ import annotations

import contextlib
import sys

import atheris

with atheris.instrument_imports(include=["kraft.protocol", "kraft.security", "kraft.network", "quorum.rpc"]):
    from kraft.network.framing import FrameBuffer, FrameError
    from kraft.protocol import ProtocolError, decode_request, decode_request_header
    from kraft.security.sasl_servers import PlainServer
    from kraft.security.scram import SaslError
    from tests.fuzz.doors import LINE


def one(data: bytes) -> None:
    """One input to each; anything but their typed errors is a finding."""
    buffer = FrameBuffer(max_frame_bytes=1 << 19, min_frame_bytes=8)
    space = buffer.writable(len(data))
    size = min(len(space), len(data))
    space[:size] = data[:size]
    buffer.advance(size)
    with contextlib.suppress(FrameError, ProtocolError):
        for frame in buffer.take(8):
            header, position = decode_request_header(frame)
            decode_request(header.api_key, header.api_version, frame[position:])
    with contextlib.suppress(SaslError):
        PlainServer({"bob": "hidden"}).respond(data)
    LINE.fits(data)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
