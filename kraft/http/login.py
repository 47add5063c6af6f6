"""Who asks for a page: a SCRAM user by name and password (RFC 7617), or the owner of a certificate.

`http.authentication` says which count; without it anybody may ask over loopback, and elsewhere a user is needed. Health
is for everybody. Whoever is let in is `request[PRINCIPAL]` for what follows; streams end when it would not be let in
any more (`request[IS_STILL_KNOWN]`). A wrong password is answered after `connection.failed.authentication.delay.ms`,
and of one address one password is looked at at a time: so guesses cost.
"""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from kraft.broker.listener_security import false_salt_secret
from kraft.broker.tls import certificate_principal
from kraft.config import HTTP_LISTENER, ServerConfig, http_authentication
from kraft.http.console.access import IS_STILL_KNOWN, PRINCIPAL
from kraft.http.hosts import is_for_everybody
from kraft.listeners import is_loopback, split_host_port
from kraft.security.authentication import USER_PREFIX
from kraft.security.password_verdicts import Verdicts
from kraft.security.principal_mapping import PrincipalMapping
from kraft.security.sasl_servers import Credentials, ScramUsers
from partitions.ports import Executor
from quorum.rpc.sparse_log import SparseLog

log = structlog.get_logger(__name__)

BASIC: Final = "basic"
TLS: Final = "tls"
WAITING_MAX: Final = 8
"""Passwords of one address that may wait to be looked at."""
AT_ONCE: Final = 1
"""Passwords that are looked at at once: the threads are for the disk, too."""
KEY_BYTES: Final = 32
_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="kraft", charset="UTF-8"'}


class Asked(NamedTuple):
    """What a request says of its sender."""

    address: str
    authorization: str | None
    certificate: bytes | None


@dataclass
class _Guesses:
    """Of one address, while there are any."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class Busy(Exception):
    """Too many passwords wait to be looked at."""


class Login:
    """One node's. Made on the event loop that it lives on."""

    def __init__(
        self,
        methods: tuple[str, ...],
        verdicts: Verdicts,
        mapping: PrincipalMapping,
        executor: Executor,
        delay_s: float,
    ) -> None:
        self.methods = methods
        self._verdicts = verdicts
        self._mapping = mapping
        self._executor = executor
        self._delay_s = delay_s
        self._guesses: dict[str, _Guesses] = {}
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._refused = SparseLog("a request for a page was refused: nobody's name and password")

    async def principal(self, asked: Asked) -> str | None:
        """Who asks; None: nobody that is known. Raises Busy."""
        named = self._certified(asked)
        if named is not None:
            return named
        pair = self._said(asked)
        if pair is None:
            return None
        name, password = pair
        return USER_PREFIX + name if await self._is_right(asked.address, name, password) else None

    def still_knows(self, asked: Asked) -> bool:
        """Whether who was let in would be now: its user may have been removed, or have another password. No password
        is looked at: who is not remembered is to ask again."""
        pair = self._said(asked)
        if pair is not None and self._verdicts.knows(self._verdicts.ask(*pair)):
            return True
        return self._certified(asked) is not None

    def _certified(self, asked: Asked) -> str | None:
        if TLS not in self.methods or asked.certificate is None:
            return None
        return certificate_principal(asked.certificate, self._mapping)

    def _said(self, asked: Asked) -> tuple[str, str] | None:
        return name_and_password(asked.authorization) if BASIC in self.methods else None

    async def _is_right(self, address: str, name: str, password: str) -> bool:
        question = self._verdicts.ask(name, password)
        if self._verdicts.knows(question):
            return True
        guesses = self._guesses.setdefault(address, _Guesses())
        if guesses.waiting >= WAITING_MAX:
            raise Busy
        guesses.waiting += 1
        try:
            async with guesses.turn:
                if self._verdicts.knows(question):  # one that came with it was
                    return True
                async with self._at_once:
                    right = await self._executor.run(question.answer)
                if right is not None:
                    self._verdicts.note(question, right)
                    return True
                self._refused.warning(address=address)
                await asyncio.sleep(self._delay_s)  # within its turn: the next guess comes after it
                return False
        finally:
            guesses.waiting -= 1
            if not guesses.waiting:
                del self._guesses[address]


def make_login(
    config: ServerConfig,
    credentials: Callable[[], Credentials],
    cluster_id: str,
    executor: Executor,
    rng: random.Random,
) -> Login | None:
    """As the configuration says; None: anybody may ask. `credentials`: those of the node's metadata now."""
    methods = http_authentication(config)
    host, _ = split_host_port(config.get("http.listener"))
    if BASIC in methods and not config.get("http.ssl.enable") and not is_loopback(host):
        log.warning("passwords come to http.listener unencrypted: set http.ssl.enable=true")
    if not methods:
        if not is_loopback(host):
            log.warning(
                "http.authentication=none: everybody who reaches http.listener may read this node's pages"
            )
        return None
    users = ScramUsers(credentials, false_salt_secret(config, cluster_id))
    return Login(
        methods,
        Verdicts(users, rng.randbytes(KEY_BYTES)),
        config.of_listener(HTTP_LISTENER, "ssl.principal.mapping.rules"),
        executor,
        config.get("connection.failed.authentication.delay.ms") / 1000,
    )


def demanding(login: Login) -> Middleware:
    """Refuses who is nobody."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if is_for_everybody(request.path):
            return await handler(request)
        asked = _asked(request)
        try:
            principal = await login.principal(asked)
        except Busy:
            text = "too many passwords of this address are being looked at: try again in a moment"
            return web.json_response({"error": text}, status=429, headers={"Retry-After": "1"})
        if principal is None:
            return _refusal(login.methods)
        request[PRINCIPAL] = principal
        request[IS_STILL_KNOWN] = lambda: login.still_knows(asked)
        return await handler(request)

    return check


def _refusal(methods: tuple[str, ...]) -> web.Response:
    if BASIC not in methods:
        return web.json_response({"error": "a client certificate is needed"}, status=403)
    text = "a name and password are needed: those of a SCRAM user (kraft users)"
    return web.json_response({"error": text}, status=401, headers=_CHALLENGE)


def _asked(request: web.Request) -> Asked:
    transport = request.transport
    connection: Any = None if transport is None else transport.get_extra_info("ssl_object")
    certificate = None if connection is None else connection.getpeercert(binary_form=True)
    return Asked(request.remote or "", request.headers.get("Authorization"), certificate)


def name_and_password(authorization: str | None) -> tuple[str, str] | None:
    """What an Authorization header of the scheme Basic says (RFC 7617); None: nothing that counts."""
    scheme, _, text = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(text.strip(), validate=True).decode().partition(":")
    except ValueError:
        return None
    return (name, password) if colon and name and password else None
