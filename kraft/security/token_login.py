"""Where the tokens of a client of OAUTHBEARER come from: a file, or an issuer's endpoint (KIP-768, KIP-1139).

`parse_token_login` reads Kafka's settings, or librdkafka's, and refuses what is not done. A request, its answer, the
times between attempts and the time of the next token are decided here; `kraft.runtime.tokens` asks. Pure. Secrets are
in no repr and in no error: of an answer only the status and the error's word are repeated.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple, Protocol
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

from kraft.security.jaas import LoginModule
from kraft.security.oauthbearer_client import OAUTHBEARER, TOKEN_MAX_BYTES, BearerToken
from kraft.security.scram import SaslError

ANSWER_MAX_BYTES: Final = 64 << 10
CLOCK_SKEW_S: Final = 30.0
"""How far the issuer's clock may be from the own one, as Kafka's brokers take it."""
RENEWED_AFTER: Final = 0.75
"""Of a token's time: sessions are renewed later, so that they find a new one."""
PAUSE_MIN_S: Final = 1.0
MILLISECONDS_MAX: Final = 600_000
URL_FORM: Final = "file:///PATH, https://HOST/PATH or http://HOST/PATH"

URL: Final = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE: Final = "sasl.oauthbearer.scope"
SUBJECT: Final = "sasl.oauthbearer.sub.claim.name"
URL_ENCODES: Final = "sasl.oauthbearer.header.urlencode"
CONNECT_TIMEOUT: Final = "sasl.login.connect.timeout.ms"
READ_TIMEOUT: Final = "sasl.login.read.timeout.ms"
BACKOFF: Final = "sasl.login.retry.backoff.ms"
BACKOFF_MAX: Final = "sasl.login.retry.backoff.max.ms"
DEFAULTS_MS: Final[Mapping[str, int]] = {
    CONNECT_TIMEOUT: 10_000,
    READ_TIMEOUT: 10_000,
    BACKOFF: 100,
    BACKOFF_MAX: 10_000,
}
"""Kafka's; it has no timeouts of its own."""
LOGIN_KEYS: Final = (URL, CLIENT_ID, CLIENT_SECRET, SCOPE, SUBJECT, URL_ENCODES, *DEFAULTS_MS)
"""What a server's file may say of its own login."""
JAAS: Final = "sasl.jaas.config"
MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_EXTENSIONS: Final = "sasl.oauthbearer.extensions"
_ALIASES: Final[Mapping[str, str]] = {
    "sasl.oauthbearer.client.id": CLIENT_ID,
    "sasl.oauthbearer.client.secret": CLIENT_SECRET,
}
"""librdkafka's names, and Kafka's."""
_ONLY: Final[Mapping[str, tuple[str, ...]]] = {
    "sasl.oauthbearer.method": ("oidc", "default"),
    "sasl.oauthbearer.grant.type": ("client_credentials",),
    "sasl.oauthbearer.jwt.retriever.class": (
        "DefaultJwtRetriever",
        "ClientCredentialsJwtRetriever",
        "FileJwtRetriever",
    ),
    "sasl.oauthbearer.jwt.validator.class": ("DefaultJwtValidator", "ClientJwtValidator"),
    "sasl.login.callback.handler.class": ("OAuthBearerLoginCallbackHandler",),
    "sasl.login.class": ("DefaultLogin",),
}
"""Values, or the ends of classes' names, that say what is done here anyway."""
_OF_SERVERS: Final = ("sasl.oauthbearer.jwks.", "sasl.oauthbearer.expected.")
_WITHOUT_EFFECT: Final = frozenset(
    ("sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.clock.skew.seconds")
)
_KNOWN: Final = frozenset(
    (URL, CLIENT_ID, CLIENT_SECRET, SCOPE, SUBJECT, URL_ENCODES, _EXTENSIONS, *_ALIASES)
)
_OPTIONS: Final = ("clientId", "clientSecret", "scope")
_TRUST_OPTIONS: Final = ("ssl.truststore.location", "ssl.truststore.certificates", "ssl.truststore.type")
_EXTENSION_OPTION: Final = "extension_"
_EXTENSION: Final = re.compile(r"[A-Za-z]+=[\x20-\x7e\t\r\n]+")
_TOKEN: Final = re.compile(r"([-A-Za-z0-9_]+)\.([-A-Za-z0-9_]+)\.([-A-Za-z0-9_]+)")
_WORD: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_RETRIED: Final = frozenset((408, 425, 429))
_FINAL_OF_SERVERS: Final = frozenset((501, 505))
_OK: Final = (200, 201)
_ODD: Final = (ValueError, TypeError, KeyError, RecursionError)


class LoginError(ValueError):
    """Settings that cannot be used; the message is a sentence and shows no secret."""


class TokenError(SaslError):
    """There is no token. The message is the end of a sentence, and shows nothing of a token or a secret."""

    def __init__(self, message: str, *, is_final: bool = True) -> None:
        super().__init__(message)
        self.is_final = is_final
        """Whether asking again soon would change nothing."""


class TokenSupply(Protocol):
    """Has a token for whoever authenticates."""

    async def current(self) -> BearerToken:
        """One that counts now. Raises TokenError."""


@dataclass(frozen=True)
class TokenLogin:
    """How a client gets its tokens; pickled to Spark's executors."""

    url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    extensions: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    subject_claim: str = "sub"
    url_encodes: bool = False
    """Whether id and secret are URL-encoded in the header, as RFC 6749 has it and few issuers do."""
    trusted_file: str | None = None
    """PEM file of the authorities of the endpoint; None with `trusted` None: those of the system."""
    trusted: str | None = None
    """The same as PEM text."""
    connect_timeout_ms: int = DEFAULTS_MS[CONNECT_TIMEOUT]
    read_timeout_ms: int = DEFAULTS_MS[READ_TIMEOUT]
    backoff_ms: int = DEFAULTS_MS[BACKOFF]
    backoff_max_ms: int = DEFAULTS_MS[BACKOFF_MAX]
    """Of all pauses between attempts together, as Kafka counts."""
    mechanism: ClassVar[str] = OAUTHBEARER

    @property
    def path(self) -> str | None:
        """Of the token's file; None: tokens come from an endpoint."""
        parts = urlsplit(self.url)
        return unquote(parts.path) if parts.scheme == "file" else None

    @property
    def place(self) -> str:
        """The URL without its query, to be shown."""
        return urlsplit(self.url)._replace(query="", fragment="").geturl()

    @property
    def limit_s(self) -> float:
        """What all attempts take together at most."""
        return (self.backoff_max_ms + self.connect_timeout_ms + self.read_timeout_ms) / 1000

    def pauses_s(self) -> Iterator[float]:
        """Those between attempts: each twice as long as the one before, until they would be too long together."""
        pause_ms, sum_ms = self.backoff_ms, 0
        while sum_ms + pause_ms <= self.backoff_max_ms:
            sum_ms += pause_ms
            yield pause_ms / 1000
            pause_ms *= 2


def issuer_url(text: str) -> str:
    """Raises ValueError."""
    parts = urlsplit(text)
    if parts.scheme == "file" and parts.path.startswith("/") and parts.netloc in ("", "localhost"):
        return text
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError(f"it must be like {URL_FORM}, without a password")
    return text


def parse_token_login(given: Mapping[str, str], module: LoginModule | None, prefix: str = "") -> TokenLogin:
    """From keys of Kafka or librdkafka; `module` is that of sasl.jaas.config, whose options count where keys do not
    say it. `prefix` stands before names in messages. Raises LoginError."""
    values = {_ALIASES.get(name, name): value.strip() for name, value in given.items() if value.strip()}
    _check_names(values, prefix)
    options: Mapping[str, str] = {} if module is None else module.options
    _check_module(module, prefix)
    if URL not in values:
        raise LoginError(f"{prefix}{URL} is not set: it says where tokens come from, as {URL_FORM}.")
    try:
        url = issuer_url(values[URL])
    except ValueError as error:
        raise LoginError(f"{prefix}{URL} cannot be used: {error}.") from None
    client_id = values.get(CLIENT_ID) or options.get("clientId", "").strip()
    secret = values.get(CLIENT_SECRET) or options.get("clientSecret", "").strip()
    if not url.startswith("file:") and not (client_id and secret):
        raise LoginError(
            f"{prefix}{URL} is an endpoint, which asks who the client is: set {prefix}{CLIENT_ID} and"
            f" {prefix}{CLIENT_SECRET}, or clientId and clientSecret in {prefix}{JAAS}."
        )
    trusted_file = values.get("https.ca.location") or options.get("ssl.truststore.location")
    trusted = values.get("https.ca.pem") or options.get("ssl.truststore.certificates")
    if trusted_file and trusted:
        raise LoginError("The authorities of the token endpoint are given as a file and as a text: give one.")
    return TokenLogin(
        url,
        client_id,
        secret,
        values.get(SCOPE) or options.get("scope", "").strip(),
        _extensions(values, options, prefix),
        values.get(SUBJECT, "sub"),
        values.get(URL_ENCODES, "false").lower() == "true",
        trusted_file,
        trusted,
        *(_milliseconds(values, name, prefix) for name in DEFAULTS_MS),
    )


def _check_names(values: Mapping[str, str], prefix: str) -> None:
    for name, value in values.items():
        if name in _ONLY:
            if not any(value == word or value.endswith(f".{word}") for word in _ONLY[name]):
                raise LoginError(
                    f"{prefix}{name}: only {' or '.join(_ONLY[name])} is supported. Tokens come from a file, or from an"
                    " endpoint for a client's id and secret."
                )
        elif name.startswith("sasl.oauthbearer.") and not (
            name in _KNOWN or name in _WITHOUT_EFFECT or name.startswith(_OF_SERVERS)
        ):
            raise LoginError(
                f"{prefix}{name} is not supported: of OAUTHBEARER there are {', '.join(sorted(_KNOWN))}."
            )
    if values.get(URL_ENCODES, "false").lower() not in ("true", "false"):
        raise LoginError(f"{prefix}{URL_ENCODES} is true or false.")


def _check_module(module: LoginModule | None, prefix: str) -> None:
    """No option is shown: what is read as one may be part of a secret."""
    if module is None:
        return
    if not module.name.endswith(MODULE):  # platforms have copies with longer names
        raise LoginError(f"{prefix}{JAAS} must name {MODULE} for OAUTHBEARER.")
    if any(name.startswith("unsecured") for name in module.options):
        raise LoginError(
            f"{prefix}{JAAS}: tokens that nobody signs (unsecuredLogin…) are not supported, and no broker should take"
            f" them: set {prefix}{URL}."
        )
    taken = (*_OPTIONS, *_TRUST_OPTIONS)
    if any(name not in taken and not name.startswith(_EXTENSION_OPTION) for name in module.options):
        raise LoginError(
            f"{prefix}{JAAS} has an option that is not supported for OAUTHBEARER; there are {', '.join(taken)} and"
            f" {_EXTENSION_OPTION}NAME."
        )
    if module.options.get("ssl.truststore.type", "PEM").upper() != "PEM":
        raise LoginError(f"{prefix}{JAAS}: only PEM is read: convert the store, and set the type to PEM.")


def _extensions(
    values: Mapping[str, str], options: Mapping[str, str], prefix: str
) -> tuple[tuple[str, str], ...]:
    """Of librdkafka's list or of the login module (KIP-342)."""
    given = [pair.strip() for pair in values.get(_EXTENSIONS, "").split(",") if pair.strip()]
    given += [
        f"{name.removeprefix(_EXTENSION_OPTION)}={value}"
        for name, value in options.items()
        if name.startswith(_EXTENSION_OPTION)
    ]
    found: dict[str, str] = {}
    for pair in given:
        name, _, value = pair.partition("=")
        if not _EXTENSION.fullmatch(pair) or name.lower() == "auth":
            raise LoginError(
                f"{prefix}{JAAS} or {prefix}{_EXTENSIONS}: an extension has a name of letters, not auth, and a value of"
                " ASCII characters."
            )
        found[name] = value
    return tuple(found.items())


def _milliseconds(values: Mapping[str, str], name: str, prefix: str) -> int:
    text = values.get(name, str(DEFAULTS_MS[name]))
    if not re.fullmatch(r"[0-9]{1,6}", text) or not 1 <= int(text) <= MILLISECONDS_MAX:
        raise LoginError(f"{prefix}{name} must be a time in ms, from 1 to {MILLISECONDS_MAX}.")
    return int(text)


class TokenRequest(NamedTuple):
    """A POST. The headers hold the secret: do not show them."""

    headers: Mapping[str, str]
    body: bytes


def token_request(login: TokenLogin) -> TokenRequest:
    """The client credentials grant (RFC 6749, 4.4), as Kafka's clients write it."""
    client_id, secret = login.client_id, login.client_secret
    if login.url_encodes:
        client_id, secret = quote_plus(client_id), quote_plus(secret)
    form = {"grant_type": "client_credentials"} | ({"scope": login.scope} if login.scope else {})
    return TokenRequest(
        {
            "Authorization": f"Basic {b64encode(f'{client_id}:{secret}'.encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
            "Cache-Control": "no-cache",
        },
        urlencode(form).encode(),
    )


def token_of_answer(login: TokenLogin, status: int, content: bytes, now_s: float) -> BearerToken:
    """What an endpoint answered. Raises TokenError."""
    if status not in _OK:
        is_final = (400 <= status < 500 and status not in _RETRIED) or status in _FINAL_OF_SERVERS
        redirected = (
            ", and redirections are not followed: set the URL of the endpoint" if 300 <= status < 400 else ""
        )
        raise TokenError(
            f"{login.place} answers {status}{_error_word(content)}{redirected}",
            is_final=is_final or bool(redirected),
        )
    try:
        answer = json.loads(content)
        token = answer["access_token"]
    except _ODD as error:
        raise TokenError(f"{login.place} answers no JSON with an access_token") from error
    if not isinstance(token, str):
        raise TokenError(f"{login.place} answers an access_token that is no text")
    return read_token(login, token, now_s)


def _error_word(content: bytes) -> str:
    """The `error` of an answer (RFC 6749, 5.2), which is one of a few words; descriptions may repeat anything."""
    try:
        word = json.loads(content)["error"]
    except _ODD:
        return ""
    return f" ({word})" if isinstance(word, str) and _WORD.fullmatch(word) else ""


def read_token(login: TokenLogin, text: str, now_s: float) -> BearerToken:
    """A JWT, as far as the client has to know: when it ends, and whom it names. Nobody but the broker judges its
    signature. Raises TokenError."""
    token = text.strip()
    found = _TOKEN.fullmatch(token) if len(token) <= TOKEN_MAX_BYTES else None
    if found is None:
        raise TokenError(f"what {login.place} gives is no signed JWT")
    try:
        claims: Any = json.loads(urlsafe_b64decode(f"{found[2]}=="))
        expires_at_s = claims["exp"]
    except _ODD as error:
        raise TokenError(f"the token of {login.place} has no claims with exp") from error
    is_number = isinstance(expires_at_s, int | float) and not isinstance(expires_at_s, bool)
    if not is_number or not 0 <= expires_at_s <= 2**53:  # nor NaN
        raise TokenError(f"the token of {login.place} has an exp that is no time")
    if expires_at_s + CLOCK_SKEW_S <= now_s:
        raise TokenError(f"the token of {login.place} has expired")
    subject = claims.get(login.subject_claim)
    name = subject.strip() if isinstance(subject, str) else ""
    return BearerToken(token, float(expires_at_s), name or "somebody without a name", login.extensions)


class KeptToken:
    """The token that is there, and when another one is wanted: well before it ends, and again later if there is none.

    A file is read each time: it costs nothing, and who writes it may have put a new one there at any time.
    """

    def __init__(self, login: TokenLogin) -> None:
        self._is_file = login.path is not None
        self._token: BearerToken | None = None
        self.due_at_s = 0.0
        """Since the Unix epoch."""

    def usable(self, now_s: float) -> BearerToken | None:
        """The token, if it still counts."""
        token = self._token
        return token if token is not None and now_s < token.expires_at_s else None

    def is_due(self, now_s: float) -> bool:
        return self._is_file or now_s >= self.due_at_s

    def fetched(self, token: BearerToken, now_s: float) -> None:
        self._token = token
        self._wait(token, now_s)

    def failed(self, now_s: float) -> BearerToken | None:
        """The token that is there counts on, if it does."""
        token = self.usable(now_s)
        if token is not None:
            self._wait(token, now_s)
        return token

    def _wait(self, token: BearerToken, now_s: float) -> None:
        self.due_at_s = now_s + max(PAUSE_MIN_S, (token.expires_at_s - now_s) * RENEWED_AFTER)
