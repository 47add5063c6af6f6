"""TLS beside plaintext, on the same broker; and what a gigabyte costs to send, to copy, and to encrypt.

A consumer's records leave a plain connection by sendfile: no byte of them comes into the process. For TLS they are
read from the page cache (the copy), encrypted, and written.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bench.security.brokers import secured, write_identity
from bench.turns import document, in_turns, ratios, turn

PIECE_BYTES = 256 * 1024


class Costs(NamedTuple):
    """CPU seconds of the sending thread for a GB (10^9 bytes)."""

    sendfile: float
    copy: float
    """Reading it from the page cache into the process, and sending it from there."""
    cipher: float
    """Encrypting it, into memory."""
    cipher_name: str


def tls(directory: Path, records: int, pairs: int, costs_gb: float) -> dict[str, Any]:
    """Raises BenchError."""
    with secured(directory / "tls") as broker:
        host, port = broker.address("TLS")
        settings = {"security.protocol": "ssl", "ssl.ca.location": str(broker.certificate)}
        turns = in_turns(
            pairs,
            {
                "plaintext": lambda: turn(broker, broker.bootstrap, records, {}, single=False),
                "tls": lambda: turn(broker, f"{host}:{port}", records, settings, single=False),
            },
        )
    return {
        "produce": ratios(turns["tls"], turns["plaintext"], "produced"),
        "consume": ratios(turns["tls"], turns["plaintext"], "consumed"),
        "costs_s_per_gb": costs(directory, costs_gb)._asdict(),
        "runs": {name: document(of_name) for name, of_name in turns.items()},
    }


def costs(directory: Path, gigabytes: float) -> Costs:
    """Of one file that is in the page cache, over a pair of sockets that another thread empties."""
    pieces = max(1, round(gigabytes * 1e9 / PIECE_BYTES))
    path = directory / "piece"
    path.write_bytes(os.urandom(PIECE_BYTES))
    files = directory / "identity"
    files.mkdir()
    write_identity(files)
    server, outgoing, cipher_name = _session(files)

    def encrypt() -> None:
        server.write(data)
        while outgoing.pending:
            outgoing.read(PIECE_BYTES)

    with path.open("rb") as file:
        descriptor = file.fileno()
        data = os.pread(descriptor, PIECE_BYTES, 0)
        with _drained() as sending:

            def by_sendfile() -> None:
                sent = 0
                while sent < PIECE_BYTES:
                    sent += os.sendfile(sending.fileno(), descriptor, sent, PIECE_BYTES - sent)

            steps: tuple[Callable[[], None], ...] = (
                by_sendfile,
                lambda: sending.sendall(os.pread(descriptor, PIECE_BYTES, 0)),
                encrypt,
            )
            sendfile, copy, cipher = (_cost(step, pieces) for step in steps)
            return Costs(sendfile, copy, cipher, cipher_name)


def _cost(step: Callable[[], None], pieces: int) -> float:
    step()
    before_s = time.thread_time()
    for _ in range(pieces):
        step()
    return (time.thread_time() - before_s) / (pieces * PIECE_BYTES / 1e9)


class _drained:
    """A stream socket of this host; a thread reads all that is sent to it."""

    def __enter__(self) -> socket.socket:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self._sending = socket.create_connection(listening.getsockname())
            self._receiving, _ = listening.accept()
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()
        return self._sending

    def _drain(self) -> None:
        room = bytearray(PIECE_BYTES)
        while self._receiving.recv_into(room):
            pass

    def __exit__(self, *_: object) -> None:
        self._sending.close()
        self._thread.join()
        self._receiving.close()


def _session(files: Path) -> tuple[ssl.SSLObject, ssl.MemoryBIO, str]:
    """The server's side of an encrypted connection in memory, what it sends, and its cipher."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files / "identity.pem")
    trusting = ssl.create_default_context(cafile=str(files / "certificate.pem"))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(to_server, to_client, server_side=True)
    client = trusting.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    done: set[ssl.SSLObject] = set()
    while len(done) < 2:
        for side in (client, server):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                continue
    to_client.read()  # tickets
    cipher = server.cipher()
    return server, to_client, cipher[0] if cipher else ""
