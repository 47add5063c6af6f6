"""A server that sends pieces of a file to each client, by `os.sendfile` in a plain loop: the fastest possible.

    python -m bench.micro.bare_server FILE PIECE_BYTES PIECES

It prints the port. Each connection gets the pieces, each behind its length, and is closed when the other side
closes it.
"""

from __future__ import annotations

import os
import socket
import struct
import sys

_LENGTH = struct.Struct(">i")


def main(path: str, piece_bytes: int, pieces: int) -> None:
    file = os.open(path, os.O_RDONLY)
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            connection, _ = server.accept()
            with connection:
                _serve(connection, file, piece_bytes, pieces)
                connection.recv(1)


def _serve(connection: socket.socket, file: int, piece_bytes: int, pieces: int) -> None:
    for number in range(pieces):
        connection.sendall(_LENGTH.pack(piece_bytes), socket.MSG_MORE)
        position = number * piece_bytes
        end = position + piece_bytes
        while position < end:
            position += os.sendfile(connection.fileno(), file, position, end - position)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
