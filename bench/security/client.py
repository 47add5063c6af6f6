"""Clients that connect, each kind a process: some authenticate one after the other, some only stand.

    python -m bench.security.client connect HOST PORT CERTIFICATE PASSWORD_FILE CONNECTIONS AT_ONCE
    python -m bench.security.client stand HOST PORT CERTIFICATE CONNECTIONS

CERTIFICATE is what the broker's is trusted by; `-`: the connection is not encrypted. Both begin with a line of input
and then report; those that stand do so until their input ends.
"""

from __future__ import annotations

import asyncio
import functools
import json
import secrets
import socket
import ssl
import struct
import sys
import time
from pathlib import Path
from typing import Any

from bench.security.brokers import ADMIN
from kraft.protocol.api import APIS
from kraft.protocol.headers import decode_response_header
from kraft.protocol.messages import decode_response, encode_request_frame
from kraft.runtime.loop import raise_open_files_limit
from kraft.security import scram
from kraft.security.exchange import SaslRefusal, sasl_exchange
from kraft.security.mechanisms import Credentials

CONNECT_S = 30.0


async def _authenticate(
    host: str, port: int, context: ssl.SSLContext | None, credentials: Credentials
) -> None:
    async with asyncio.timeout(CONNECT_S):
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
        try:
            steps, answer, number = sasl_exchange(credentials, secrets.token_urlsafe(18)), None, 0
            while True:
                try:
                    request = steps.send(answer)
                except StopIteration:
                    return
                version, number = APIS[request.API_KEY].versions[-1], number + 1
                writer.write(encode_request_frame(request, version, correlation_id=number, client_id="bench"))
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(length)
                _, position = decode_response_header(request.API_KEY, version, frame)
                answer: Any = decode_response(request.API_KEY, version, frame, position)
        finally:
            writer.close()


async def connect(
    address: tuple[str, int], context: ssl.SSLContext | None, password: str, count: int, at_once: int
) -> None:
    """Authenticates `count` times, so many at once, each on a connection of its own."""
    # A client computes once what its password and the salt give: that cost is not the broker's.
    scram.salted_password = functools.cache(scram.salted_password)
    credentials = Credentials(ADMIN.mechanism, ADMIN.username, password)
    left = iter(range(count))

    async def one_by_one() -> None:
        for _ in left:
            await _authenticate(*address, context, credentials)

    await _authenticate(*address, context, credentials)
    _wait_for_start()
    began_s = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(one_by_one())
    _report(connections=count, elapsed_s=time.monotonic() - began_s)


def stand(address: tuple[str, int], context: ssl.SSLContext | None, count: int) -> None:
    """Opens connections, which say nothing."""
    _wait_for_start()
    began_s, held = time.monotonic(), []
    for _ in range(count):
        connection = socket.create_connection(address, CONNECT_S)
        held.append(
            connection if context is None else context.wrap_socket(connection, server_hostname=address[0])
        )
    _report(connections=count, elapsed_s=time.monotonic() - began_s)
    sys.stdin.read()
    for connection in held:
        connection.close()


def _wait_for_start() -> None:
    print("ready", flush=True)
    if not sys.stdin.readline():
        sys.exit("the harness went away")


def _report(**values: float) -> None:
    print(json.dumps({**values, "client_cpu_s": time.process_time()}), flush=True)


def main(arguments: list[str]) -> None:
    raise_open_files_limit()
    kind, host, port, certificate, *rest = arguments
    context = None if certificate == "-" else ssl.create_default_context(cafile=certificate)
    address = (host, int(port))
    match kind, rest:
        case "connect", [password_file, count, at_once]:
            password = Path(password_file).read_text()
            asyncio.run(connect(address, context, password, int(count), int(at_once)))
        case "stand", [count]:
            stand(address, context, int(count))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (OSError, SaslRefusal, scram.SaslError, ExceptionGroup) as error:
        sys.exit(f"{sys.argv[1]} failed: {error}")
