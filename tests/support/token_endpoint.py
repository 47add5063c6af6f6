"""An issuer's endpoint for tests: the client credentials grant over HTTP or TLS, from a thread of its own.

It checks requests by RFC 6749 itself, without any code of the product, and answers what is scripted first.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from tests.support.tokens import Issuer


class Scripted(NamedTuple):
    """An answer that is given instead of the right one."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}


class Asked(NamedTuple):
    """What somebody asked for; `scope` is empty where none was named."""

    client_id: str
    scope: str


class TokenEndpoint:
    """`clients` are secrets by client id; a client's token names it."""

    def __init__(
        self,
        issuer: Issuer,
        clients: Mapping[str, str],
        *,
        identity: Path | None = None,
        lifetime_s: float = 3600,
    ) -> None:
        """`identity`: a PEM file of its key and certificate; None: it speaks no TLS."""
        self.clients = dict(clients)
        self.lifetime_s = lifetime_s
        self.script: list[Scripted] = []
        """What is answered to the next ones."""
        self.asked: list[Asked] = []
        self.silent = threading.Event()
        """While it is set nothing is answered."""
        self._closed = threading.Event()
        self._heard = threading.Condition()
        self._issuer = issuer
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", "0"))
                answer = endpoint._answer(self.headers, self.rfile.read(length))
                if answer is None:
                    return
                self.send_response(answer.status)
                for name, value in {**answer.headers, "Content-Length": str(len(answer.body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, *_: Any) -> None:
                """It says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        scheme = "http"
        if identity is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(identity)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            scheme = "https"
        self.url = f"{scheme}://localhost:{self._server.server_port}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> TokenEndpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_for(self, times: int, timeout_s: float) -> bool:
        """Whether it is asked so often in all."""
        with self._heard:
            return self._heard.wait_for(lambda: len(self.asked) >= times, timeout_s)

    def close(self) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, headers: Any, body: bytes) -> Scripted | None:
        kind, _, credentials = headers.get("Authorization", "").partition(" ")
        client_id, _, secret = base64.b64decode(credentials).decode().partition(":")
        form = parse_qs(body.decode())
        with self._heard:
            self.asked.append(Asked(client_id, form.get("scope", [""])[0]))
            self._heard.notify_all()
        if self.silent.is_set():
            self._closed.wait(60)
            return None
        if self.script:
            return self.script.pop(0)
        is_form = headers.get("Content-Type") == "application/x-www-form-urlencoded"
        if kind != "Basic" or not is_form or form.get("grant_type") != ["client_credentials"]:
            return _json(400, error="invalid_request", error_description=f"of {client_id}:{secret}")
        if self.clients.get(client_id) != secret:
            return _json(401, error="invalid_client", error_description=f"{secret} is wrong")
        token = self._issuer.token(time.time(), client_id, self.lifetime_s)
        return _json(200, access_token=token, token_type="Bearer", expires_in=self.lifetime_s)


def _json(status: int, **values: Any) -> Scripted:
    return Scripted(status, json.dumps(values).encode(), {"Content-Type": "application/json"})
