"""A client that takes length-prefixed answers from a socket as fast as they come, and drops them.

    python -m bench.micro.reader PORT FRAMES REQUESTS

REQUESTS is a file of requests, each behind its length, sent a few at a time; or `-` where the other side sends without
being asked. It prints `ready`, waits for a line, prints a report.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
from pathlib import Path
from types import TracebackType

ON_THEIR_WAY = 4
TIMEOUT_S = 30.0
_LENGTH = struct.Struct(">i")


class Frames:
    """One connection to a port of this host."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self._buffer = bytearray(4 * 1024 * 1024)
        self._view = memoryview(self._buffer)

    def __enter__(self) -> Frames:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def send(self, frame: bytes | bytearray | memoryview) -> None:
        """A frame that begins with its length."""
        self._socket.sendall(frame)

    def receive(self) -> memoryview:
        """The next frame without its length; good until the next call. Raises ConnectionError."""
        self._receive(_LENGTH.size)
        (length,) = _LENGTH.unpack_from(self._buffer)
        self._receive(length)
        return self._view[:length]

    def _receive(self, count: int) -> None:
        done = 0
        while done < count:
            received = self._socket.recv_into(self._view[done:count])
            if not received:
                raise ConnectionError("the server closed the connection")
            done += received


def requests_in(data: bytes) -> list[bytes]:
    """The frames in a file of requests."""
    frames = []
    while data:
        (length,) = _LENGTH.unpack_from(data)
        frames.append(data[: _LENGTH.size + length])
        data = data[_LENGTH.size + length :]
    return frames


def main(port: int, count: int, requests: list[bytes]) -> None:
    with Frames(port) as frames:
        print("ready", flush=True)
        if not sys.stdin.readline():
            sys.exit("the harness went away")
        began_s = time.monotonic()
        for request in requests[:ON_THEIR_WAY]:
            frames.send(request)
        received = 0
        for number in range(count):
            received += len(frames.receive())
            if number + ON_THEIR_WAY < len(requests):
                frames.send(requests[number + ON_THEIR_WAY])
        print(json.dumps({"bytes": received, "elapsed_s": time.monotonic() - began_s}), flush=True)


if __name__ == "__main__":
    main(
        int(sys.argv[1]),
        int(sys.argv[2]),
        [] if sys.argv[3] == "-" else requests_in(Path(sys.argv[3]).read_bytes()),
    )
